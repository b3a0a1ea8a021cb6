"""One replica at a time scans a file, and an interrupted scan is repeated soon."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from unittest.mock import AsyncMock

import pytest
from pymongo.errors import AutoReconnect

from common.mongo import MongoDatabase
from common.work import is_waiting
from tests.support.servers.clamd import fake_clamd, read_stream
from tests.support.services.scans import ENGINE, FixedScanner, checks_of, linked, make_scans
from tests.support.services.upload import make_uploader, serving_uploads
from upload_service.model import Upload
from upload_service.scanning.model import ScanState, Verdict
from upload_service.scanning.store import FIRST_PAUSE, MongoScanStore
from upload_service.settings import UploadSettings
from upload_service.store import SCAN


async def pass_time(database: MongoDatabase, seconds: float) -> None:
    earlier = {"work.scan.due": {"$subtract": ["$work.scan.due", seconds * 1000]}}
    await database["uploads"].update_many(is_waiting(SCAN), [{"$set": earlier}])


@dataclass
class SlowScanner(FixedScanner):
    """Answers when it is released."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def scan(self, upload: Upload, blocks: AsyncIterator[bytes]) -> Verdict:
        verdict = await super().scan(upload, blocks)
        self.started.set()
        await self.released.wait()
        return verdict


async def test_a_scan_whose_verdict_cannot_be_stored_is_repeated(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = make_uploader()
    await linked(settings, caller, v1=b"one")
    with monkeypatch.context() as away:
        away.setattr(MongoScanStore, "mark_scanned", AsyncMock(side_effect=AutoReconnect("MongoDB restarts")))
        await make_scans(database, settings, FixedScanner()).run_due()
    await pass_time(database, FIRST_PAUSE)
    await make_scans(database, settings, FixedScanner()).run_due()
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "clean"


async def test_a_cancelled_scan_is_due_at_once(settings: UploadSettings, database: MongoDatabase) -> None:
    caller, scanner = make_uploader(), SlowScanner()
    await linked(settings, caller, v1=b"one")
    scanning = asyncio.create_task(make_scans(database, settings, scanner).run_due())
    await scanner.started.wait()
    scanning.cancel()
    await asyncio.wait([scanning])
    await make_scans(database, settings, FixedScanner()).run_due()
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "clean"


async def test_a_service_that_stops_gives_its_scan_to_another(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    received = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_stream(reader)
        received.set()
        await reader.read()

    caller = make_uploader()
    async with fake_clamd(hang) as url, serving_uploads(settings.model_copy(update={"scanner_url": url})) as api:
        await api.claim(caller, await api.upload(caller, b"one"), "v1")
        await received.wait()
    await make_scans(database, settings, FixedScanner()).run_due()
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "clean"


async def test_a_scan_that_runs_when_scans_are_repeated_has_no_effect(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller, store = make_uploader(), MongoScanStore(database)
    await linked(settings, caller, v1=b"one")
    lease = await store.queue.lease()
    assert lease is not None
    await store.make_due(None)
    assert not await store.mark_scanned(lease, Verdict(ScanState.CLEAN), ENGINE)
    assert not await store.mark_failed(lease, "late", ENGINE)
    assert await store.queue.lease() is not None
