"""One replica at a time scans a file, and an interrupted scan is repeated soon."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from unittest.mock import AsyncMock

import pytest
from pymongo.errors import AutoReconnect

from tests.support.servers.clamd import fake_clamd, read_stream
from tests.support.services.scans import ENGINE, FixedScanner, Scanning
from tests.support.services.upload import serving_uploads
from upload_service.model import Upload
from upload_service.scanning.model import ScanState, Verdict
from upload_service.scanning.store import FIRST_PAUSE, MongoScanStore
from upload_service.settings import UploadSettings


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
    scanning: Scanning, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scanning.link(v1=b"one")
    with monkeypatch.context() as away:
        away.setattr(MongoScanStore, "mark_scanned", AsyncMock(side_effect=AutoReconnect("MongoDB restarts")))
        await scanning.run()
    await scanning.let_time_pass(FIRST_PAUSE)
    await scanning.run()
    assert await scanning.state() == "clean"


async def test_a_cancelled_scan_is_due_at_once(scanning: Scanning) -> None:
    scanner = SlowScanner()
    await scanning.link(v1=b"one")
    scan = asyncio.create_task(scanning.run(scanner))
    await scanner.started.wait()
    scan.cancel()
    await asyncio.wait([scan])
    await scanning.run()
    assert await scanning.state() == "clean"


async def test_a_service_that_stops_gives_its_scan_to_another(scanning: Scanning, settings: UploadSettings) -> None:
    received = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_stream(reader)
        received.set()
        await reader.read()

    await scanning.link(v1=b"one")
    async with fake_clamd(hang) as url, serving_uploads(settings.model_copy(update={"scanner_url": url})):
        await received.wait()
    await scanning.run()
    assert await scanning.state() == "clean"


async def test_a_scan_that_runs_when_scans_are_repeated_has_no_effect(scanning: Scanning) -> None:
    await scanning.link(v1=b"one")
    lease = await scanning.store.queue.lease()
    assert lease is not None
    await scanning.store.make_due(None)
    assert not await scanning.store.mark_scanned(lease, Verdict(ScanState.CLEAN), ENGINE)
    assert not await scanning.store.mark_failed(lease, "late", ENGINE)
    assert await scanning.store.queue.lease() is not None
