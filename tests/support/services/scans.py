"""The scans of a replica with a scanner of the tests' own, and the verdicts as gates read them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase
from common.telemetry.metrics import Metrics
from common.work import Worker, is_waiting
from tests.support.services.upload import UploadApi, folder_backends, serving_uploads
from upload_service.model import Upload
from upload_service.scanning.model import Engine, ScanFailed, Scanner, ScanState, Verdict
from upload_service.scanning.service import ScanMetrics, Scans
from upload_service.scanning.store import MongoScanStore
from upload_service.settings import UploadSettings
from upload_service.store import SCAN

ENGINE = Engine("Engine 1", "2026-11-22T08:00:00+00:00")
FAR = "tcp://127.0.0.1:1"


@dataclass
class FixedScanner:
    """Reads each file, and returns a given verdict or raises a given error."""

    verdict: Verdict = field(default_factory=lambda: Verdict(ScanState.CLEAN))
    failure: BaseException | None = None
    check_failure: ScanFailed | None = None
    files: list[bytes] = field(default_factory=list)

    async def check(self) -> Engine:
        if self.check_failure:
            raise self.check_failure
        return ENGINE

    async def scan(self, upload: Upload, blocks: AsyncIterator[bytes]) -> Verdict:
        self.files.append(b"".join([block async for block in blocks]))
        if self.failure:
            raise self.failure
        return self.verdict


def make_scans(
    database: MongoDatabase, settings: UploadSettings, scanner: Scanner, *, limit: int = 1 << 20, timeout: float = 60
) -> Worker[Upload]:
    """The worker of a replica that scans."""
    store, metrics = MongoScanStore(database), ScanMetrics(Metrics("upload_service"))
    scans = Scans(store, folder_backends(settings.installers), scanner, limit, timeout, metrics)
    return Worker(store.queue, scans.scan, one_per_tenant=True)


async def linked(settings: UploadSettings, caller: Caller, **contents: bytes) -> None:
    """Upload files that are due for a scan, and link each to the version of its name. No replica scans them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("upload_service.app.SCANNERS", 0)
        async with serving_uploads(settings.model_copy(update={"scanner_url": FAR})) as api:
            for uid, content in contents.items():
                await api.claim(caller, await api.upload(caller, content), uid)


async def checks_of(settings: UploadSettings, caller: Caller, *uids: str) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("upload_service.app.SCANNERS", 0)
        async with serving_uploads(settings.model_copy(update={"scanner_url": FAR})) as api:
            return await installer_checks(api, caller, *uids)


async def installer_checks(api: UploadApi, caller: Caller, *uids: str) -> dict[str, Any]:
    answer = await api.post(caller, "installer_checks", version_uids=list(uids))
    assert answer.status == 200, answer.body
    installers: dict[str, Any] = answer.body["installers"]
    return installers


async def expire_leases(database: MongoDatabase) -> None:
    await database["uploads"].update_many(is_waiting(SCAN), [{"$set": {"work.scan.due": "$$NOW"}}])
