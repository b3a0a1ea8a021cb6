"""The scans of a replica with a scanner of the tests' own, and the verdicts as gates read them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase
from common.telemetry.metrics import Metrics
from common.work import Worker, is_waiting
from tests.support.services.upload import UploadApi, folder_backends, make_uploader
from upload_service.model import Upload
from upload_service.scanning.model import Engine, ScanFailed, Scanner, ScanState, Verdict
from upload_service.scanning.service import ScanMetrics, Scans
from upload_service.scanning.store import MongoScanStore
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


@dataclass
class Scanning:
    """A service that scans nothing by itself, the scans that a test runs, and a tenant."""

    api: UploadApi
    database: MongoDatabase
    caller: Caller = field(default_factory=make_uploader)
    scanner: FixedScanner = field(default_factory=FixedScanner)

    @property
    def store(self) -> MongoScanStore:
        return MongoScanStore(self.database)

    async def link(self, caller: Caller | None = None, /, **contents: bytes) -> None:
        """Upload files that are due for a scan, and link each to the version of its name."""
        caller = caller or self.caller
        for uid, content in contents.items():
            await self.api.claim(caller, await self.api.upload(caller, content), uid)

    def worker(self, scanner: Scanner | None = None, *, limit: int = 1 << 20, timeout: float = 60) -> Worker[Upload]:
        """The worker of a replica that scans."""
        backends, metrics = folder_backends(self.api.folder), ScanMetrics(Metrics("upload_service"))
        scans = Scans(self.store, backends, scanner or self.scanner, limit, timeout, metrics)
        return Worker(self.store.queue, scans.scan, one_per_tenant=True)

    async def run(self, scanner: Scanner | None = None, *, limit: int = 1 << 20, timeout: float = 60) -> None:
        """Scan what is due."""
        await self.worker(scanner, limit=limit, timeout=timeout).run_due()

    async def let_time_pass(self, seconds: float) -> None:
        earlier = {"work.scan.due": {"$subtract": ["$work.scan.due", seconds * 1000]}}
        await self.database["uploads"].update_many(is_waiting(SCAN), [{"$set": earlier}])

    async def scan(self, uid: str = "v1") -> dict[str, Any]:
        """The scan of a version's file."""
        scan: dict[str, Any] = (await installer_checks(self.api, self.caller, uid))[uid]["scan"]
        return scan

    async def state(self, uid: str = "v1") -> str:
        return str((await self.scan(uid))["state"])


async def installer_checks(api: UploadApi, caller: Caller, *uids: str) -> dict[str, Any]:
    answer = await api.post(caller, "installer_checks", version_uids=list(uids))
    assert answer.status == 200, answer.body
    installers: dict[str, Any] = answer.body["installers"]
    return installers
