"""One replica at a time scans a file, and an interrupted scan is repeated soon."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from unittest.mock import AsyncMock

import pytest
from pymongo.errors import AutoReconnect

from common.mongo import MongoDatabase
from tests.support.servers.clamd import fake_clamd, read_stream
from tests.support.services.scans import ENGINE, FixedScanner, checks_of, expire_leases, linked, make_scans
from tests.support.services.upload import make_uploader, serving_uploads
from tests.support.wait import until
from upload_service.model import Upload
from upload_service.scanning import service as scans_module
from upload_service.scanning.model import ScanState, Verdict
from upload_service.scanning.store import MongoScanStore
from upload_service.settings import UploadSettings

LEASE = 30  # seconds


class Killed(BaseException):
    """The end of the process: nothing after it reaches the store."""


async def pass_time(database: MongoDatabase, seconds: float) -> None:
    earlier = {"scan_due": {"$subtract": ["$scan_due", seconds * 1000]}}
    await database["uploads"].update_many({"scan_due": {"$exists": True}}, [{"$set": earlier}])


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


async def test_a_scan_of_a_dead_replica_is_repeated_within_half_a_minute(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller = make_uploader()
    dead, other = (make_scans(database, settings, FixedScanner(failure=each)) for each in (Killed(), None))
    await linked(settings, caller, v1=b"one")
    with pytest.raises(Killed):
        await dead.scan_due()
    await other.scan_due()
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "pending"
    await pass_time(database, LEASE)
    await other.scan_due()
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "clean"


async def test_a_scan_whose_verdict_cannot_be_stored_is_repeated(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = make_uploader()
    await linked(settings, caller, v1=b"one")
    with monkeypatch.context() as away:
        away.setattr(MongoScanStore, "mark_scanned", AsyncMock(side_effect=AutoReconnect("MongoDB restarts")))
        with pytest.raises(AutoReconnect):
            await make_scans(database, settings, FixedScanner()).scan_due()
    await pass_time(database, LEASE)
    await make_scans(database, settings, FixedScanner()).scan_due()
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "clean"


async def test_a_cancelled_scan_is_due_at_once(settings: UploadSettings, database: MongoDatabase) -> None:
    caller, scanner = make_uploader(), SlowScanner()
    await linked(settings, caller, v1=b"one")
    scanning = asyncio.create_task(make_scans(database, settings, scanner).scan_due())
    await scanner.started.wait()
    scanning.cancel()
    await asyncio.wait([scanning])
    await make_scans(database, settings, FixedScanner()).scan_due()
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
    await make_scans(database, settings, FixedScanner()).scan_due()
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "clean"


async def test_a_scan_longer_than_its_lease_is_not_repeated(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scans_module, "RENEWAL_SECONDS", 0.01)
    caller, slow, other = make_uploader(), SlowScanner(), FixedScanner()
    await linked(settings, caller, v1=b"one")
    scanning = asyncio.create_task(make_scans(database, settings, slow).scan_due())
    await slow.started.wait()

    async def is_renewed() -> bool:
        return not await database["uploads"].count_documents({"$expr": {"$lte": ["$scan_due", "$$NOW"]}})

    for _ in range(3):
        await expire_leases(database)
        await until(is_renewed)
        await make_scans(database, settings, other).scan_due()
    slow.released.set()
    await scanning
    assert (slow.files, other.files) == ([b"one"], [])
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "clean"


async def test_a_scanner_without_its_lease_stores_no_verdict(settings: UploadSettings, database: MongoDatabase) -> None:
    caller, slow = make_uploader(), SlowScanner()
    await linked(settings, caller, v1=b"one")
    scanning = asyncio.create_task(make_scans(database, settings, slow).scan_due())
    await slow.started.wait()
    await expire_leases(database)
    await make_scans(database, settings, FixedScanner(Verdict(ScanState.INFECTED, "Evil"))).scan_due()
    slow.released.set()
    await scanning
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "infected"


async def test_a_lease_that_was_taken_over_changes_nothing(settings: UploadSettings, database: MongoDatabase) -> None:
    caller, store = make_uploader(), MongoScanStore(database)
    await linked(settings, caller, v1=b"one")
    stale = await store.acquire_lease("", ())
    await expire_leases(database)
    current = await store.acquire_lease("", ())
    assert stale is not None
    assert current is not None
    await store.release(stale)
    assert not await store.renew(stale)
    assert not await store.mark_failed(stale, "late", ENGINE)
    assert not await store.mark_scanned(stale, Verdict(ScanState.CLEAN), ENGINE)
    assert await store.acquire_lease("", ()) is None
    assert await store.mark_scanned(current, Verdict(ScanState.INFECTED, "Evil"), ENGINE)
    assert not await store.mark_scanned(stale, Verdict(ScanState.CLEAN), ENGINE)
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "infected"


async def test_a_late_renewal_does_not_extend_a_lease_that_ended(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller, store = make_uploader(), MongoScanStore(database)
    await linked(settings, caller, v1=b"one")
    released = await store.acquire_lease("", ())
    assert released is not None
    await store.release(released)
    assert not await store.renew(released)
    failed = await store.acquire_lease("", ())
    assert failed is not None
    assert await store.mark_failed(failed, "no answer", ENGINE)
    assert not await store.renew(failed)


async def test_a_scan_that_runs_when_scans_are_repeated_has_no_effect(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller, store = make_uploader(), MongoScanStore(database)
    await linked(settings, caller, v1=b"one")
    lease = await store.acquire_lease("", ())
    assert lease is not None
    await store.make_due(None)
    assert not await store.renew(lease)
    assert not await store.mark_scanned(lease, Verdict(ScanState.CLEAN), ENGINE)
    assert await store.acquire_lease("", ()) is not None
