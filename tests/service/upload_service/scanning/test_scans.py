"""Every upload is scanned once, by any replica, and no failure counts as clean.

Leases and the order of tenants are those of every queue: see tests/contract/common/test_work.py.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from unittest.mock import AsyncMock

import pytest
from aiohttp import web
from pymongo.errors import AutoReconnect
from structlog.testing import capture_logs

from common.http.server import serving
from tests.support.servers.clamd import EICAR, MALWARE, Clamd, fake_clamd, read_stream, run_clamd
from tests.support.services.scans import ENGINE, FAR, FixedScanner, Scanning, installer_checks
from tests.support.services.upload import make_uploader, serving_uploads, sha256
from tests.support.wait import until
from upload_service.model import Upload
from upload_service.outgoing.scanners import scanner_at
from upload_service.scanning.model import ScanFailed, ScanState, Verdict
from upload_service.scanning.store import MongoScanStore
from upload_service.settings import UploadSettings

HOUR = 3600  # seconds; more than any pause between two scans of a file


@pytest.fixture(scope="module")
async def clamd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Clamd]:
    async with run_clamd(tmp_path_factory.mktemp("clamd")) as running:
        yield running


async def test_clamd_scans_an_upload_by_itself(settings: UploadSettings, clamd: Clamd) -> None:
    caller = make_uploader()
    files = {"v1": b"MZ good", "v2": EICAR, "v3": b"MZ" + MALWARE, "v4": bytes(2 << 20)}
    async with serving_uploads(settings.model_copy(update={"scanner_url": clamd.tcp})) as api:
        for uid, content in files.items():
            await api.claim(caller, await api.upload(caller, content), uid)

        async def all_scanned() -> bool:
            checks = await installer_checks(api, caller, *files)
            return all(check["scan"]["state"] != "pending" for check in checks.values())

        await until(all_scanned)
        checks = await installer_checks(api, caller, *files, "unknown")
        infected = await api.post(caller, "infected_installers")
        metrics = await api.metrics()
    assert {uid: (check["scan"]["state"], check["scan"]["reason"]) for uid, check in checks.items()} == {
        "v1": ("clean", ""),
        "v2": ("infected", "Eicar-Test.UNOFFICIAL"),
        "v3": ("infected", "Test.Marker.UNOFFICIAL"),
        "v4": ("too_large", "larger than clamd's StreamMaxLength"),
    }
    assert {uid: check["sha256"] for uid, check in checks.items()} == {
        uid: sha256(content) for uid, content in files.items()
    }
    assert infected.body == {"installers": [[caller.tenant_id, uid] for uid in ("v2", "v3")]}
    assert metrics.value("pkgrepo_scans_total", state="infected") == 2
    assert metrics.value("pkgrepo_scanner_up") == 1
    assert metrics.value("pkgrepo_scans_waiting") == 0


async def test_an_inspection_tells_the_scan_of_a_file_without_a_version(scanning: Scanning) -> None:
    async def scan() -> tuple[str, str]:
        answer = await scanning.api.service.call(scanning.caller, "GET", "inspect_upload", name)
        return answer.body["scan"]["state"], answer.body["scan"]["reason"]

    name = await scanning.api.upload(scanning.caller, b"bad")
    assert await scan() == ("pending", "")
    scanning.scanner.verdict = Verdict(ScanState.INFECTED, "Eicar")
    await scanning.run()
    assert await scan() == ("infected", "Eicar")


async def test_a_check_has_the_fields_that_gates_read(scanning: Scanning) -> None:
    scanning.scanner.verdict = Verdict(ScanState.INFECTED, "$sha256")  # no expression of the database
    await scanning.link(v1=b"one")
    await scanning.run()
    check = (await installer_checks(scanning.api, scanning.caller, "v1"))["v1"]
    assert set(check) == {"sha256", "scan", "signature"}
    assert check["scan"].pop("at")
    assert check["scan"] == {
        "state": "infected",
        "reason": "$sha256",
        "engine": "Engine 1",
        "signatures": "2026-11-22T08:00:00+00:00",
        "sha256": sha256(b"one"),
    }
    assert set(check["signature"]) == {"state", "signer", "issuer", "signed_at", "revocation", "reason", "at"}


async def test_no_tenant_reads_the_checks_of_another(scanning: Scanning) -> None:
    scanning.scanner.verdict = Verdict(ScanState.INFECTED, "Evil")
    await scanning.link(v1=b"one")
    await scanning.run()
    other = make_uploader()
    assert await installer_checks(scanning.api, other, "v1") == {}
    assert (await scanning.api.post(other, "infected_installers")).body == {"installers": []}


@pytest.mark.parametrize("failure", [ScanFailed("clamd answers ERROR"), OSError(5, "/secret/path"), TimeoutError()])
async def test_a_failed_scan_is_not_clean_and_is_repeated_later(scanning: Scanning, failure: Exception) -> None:
    scanning.scanner.failure = failure
    await scanning.link(v1=b"one")
    await scanning.run()
    await scanning.run()
    assert len(scanning.scanner.files) == 1  # It is not due yet.
    scan = await scanning.scan()
    assert scan["state"] == "failed"
    assert "secret" not in scan["reason"]
    scanning.scanner.failure = None
    await scanning.let_time_pass(HOUR)
    await scanning.run()
    assert await scanning.state() == "clean"


async def test_an_unusable_scanner_leaves_all_files_pending(scanning: Scanning) -> None:
    scanning.scanner.check_failure = ScanFailed("away")
    await scanning.link(v1=b"one")
    await scanning.run()
    assert (scanning.scanner.files, await scanning.state()) == ([], "pending")


async def test_a_scanner_that_hangs_gives_no_verdict(scanning: Scanning) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_stream(reader)
        await reader.read()

    await scanning.link(v1=b"one")
    async with fake_clamd(hang) as url:
        await scanning.run(scanner_at(url), timeout=0.1)
    scan = await scanning.scan()
    assert (scan["state"], scan["reason"][:34]) == ("failed", "the scanner did not answer within ")


async def test_a_file_over_the_limit_is_never_sent(scanning: Scanning) -> None:
    await scanning.link(v1=bytes(11), v2=bytes(10))
    await scanning.run(limit=10)
    assert scanning.scanner.files == [bytes(10)]
    assert [await scanning.state(uid) for uid in ("v1", "v2")] == ["too_large", "clean"]


@pytest.mark.parametrize("change", [lambda data: data[:-1] + b"!", lambda data: data[:-1], lambda data: b""])
async def test_a_verdict_about_other_bytes_than_uploaded_is_not_stored(
    scanning: Scanning, change: Callable[[bytes], bytes]
) -> None:
    await scanning.link(v1=b"one")
    (name,) = scanning.api.files(scanning.caller)
    path = scanning.api.folder / scanning.caller.tenant_id / name
    path.write_bytes(change(path.read_bytes()))
    await scanning.run()
    assert await scanning.state() == "failed"


@dataclass
class LazyScanner(FixedScanner):
    """Answers before it has read the file."""

    async def scan(self, upload: Upload, blocks: AsyncIterator[bytes]) -> Verdict:
        return self.verdict


async def test_a_verdict_about_a_part_of_the_file_is_not_stored(scanning: Scanning) -> None:
    await scanning.link(v1=b"one")
    await scanning.run(LazyScanner())
    assert await scanning.state() == "failed"


@pytest.mark.parametrize("hangs", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_an_http_scanner_that_does_not_read_the_file_gives_no_verdict(scanning: Scanning, hangs: bool) -> None:
    content, released = bytes(8 << 20), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"engine": "Hasty"})
        if hangs:
            await released.wait()
        return web.json_response({"state": "clean", "sha256": sha256(content)})

    app = web.Application()
    app.router.add_route("*", "/", answer)
    await scanning.link(v1=content)
    async with serving(app, "127.0.0.1:0") as address:
        await scanning.run(scanner_at(f"{address}/"), limit=16 << 20, timeout=0.1 if hangs else 60)
        released.set()
    assert await scanning.state() == "failed"


async def test_a_scanner_that_is_away_is_reported_while_no_file_waits(settings: UploadSettings) -> None:
    with capture_logs() as logs:
        async with serving_uploads(settings.model_copy(update={"scanner_url": FAR})) as api:
            assert (await api.metrics()).value("pkgrepo_scanner_up") == 0
    (entry,) = [entry for entry in logs if entry["event"] == "scanner_unusable"]
    assert entry["reason"].startswith("clamd is not reached")


async def test_the_old_verdict_counts_until_there_is_a_new_one(scanning: Scanning) -> None:
    await scanning.link(v1=b"one")
    await scanning.run()
    assert await scanning.store.make_due(scanning.caller.tenant_id) == 1
    assert await scanning.state() == "clean"
    scanning.scanner.failure = ScanFailed("away")
    await scanning.run()
    assert await scanning.state() == "clean"
    scanning.scanner.failure, scanning.scanner.verdict = None, Verdict(ScanState.INFECTED, "Evil")
    await scanning.let_time_pass(HOUR)
    await scanning.run()
    await scanning.store.make_due(scanning.caller.tenant_id)
    await scanning.run(limit=1)  # An infected file stays infected under a lower limit.
    scan = await scanning.scan()
    assert (scan["state"], scan["reason"]) == ("infected", "Evil")
    scanning.scanner.failure = ScanFailed("away")
    await scanning.store.make_due(scanning.caller.tenant_id)
    await scanning.run()
    assert await scanning.state() == "infected"


async def test_a_repeat_for_one_tenant_leaves_other_tenants_alone(scanning: Scanning) -> None:
    await scanning.link(v1=b"one")
    await scanning.link(make_uploader(), v1=b"other")
    await scanning.run()
    await scanning.store.make_due(scanning.caller.tenant_id)
    await scanning.run()
    assert sorted(scanning.scanner.files) == [b"one", b"one", b"other"]


async def test_a_file_older_than_scans_is_scanned_when_it_is_asked_for(
    scanning: Scanning, settings: UploadSettings
) -> None:
    caller = scanning.caller
    async with serving_uploads(settings) as api:
        await api.claim(caller, await api.upload(caller, b"old"), "v1")
        assert (await installer_checks(api, caller, "v1"))["v1"]["scan"]["state"] == "off"
    await scanning.run()
    assert scanning.scanner.files == []
    assert await scanning.state() == "pending"
    await scanning.run()
    assert scanning.scanner.files == [b"old"]


async def test_a_scan_whose_verdict_cannot_be_stored_is_repeated(
    scanning: Scanning, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scanning.link(v1=b"one")
    with monkeypatch.context() as away:
        away.setattr(MongoScanStore, "mark_scanned", AsyncMock(side_effect=AutoReconnect("MongoDB restarts")))
        await scanning.run()
    await scanning.let_time_pass(HOUR)
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
