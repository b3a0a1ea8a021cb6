"""Every upload is scanned once, by any replica, and no failure counts as clean."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from common.auth.internal_tokens import Caller
from common.http.server import serving
from common.mongo import MongoDatabase
from common.tenants import ALL_TENANTS, Tenant
from tests.support.servers.clamd import EICAR, MALWARE, Clamd, fake_clamd, read_stream, run_clamd
from tests.support.services.scans import (
    FAR,
    FixedScanner,
    checks_of,
    expire_leases,
    installer_checks,
    linked,
    make_scans,
)
from tests.support.services.upload import make_uploader, serving_uploads, sha256
from tests.support.wait import until
from upload_service.model import Upload
from upload_service.outgoing.scanners import scanner_at
from upload_service.scanning.model import ScanFailed, ScanState, Verdict
from upload_service.scanning.store import MongoScanStore
from upload_service.settings import UploadSettings


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
        infected = await api.post(Caller.service(Tenant(ALL_TENANTS)), "infected_installers")
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
    own = [[caller.tenant_id, uid] for uid in ("v2", "v3")]
    assert [row for row in infected.body["installers"] if row[0] == caller.tenant_id] == own
    assert metrics.value("pkgrepo_scans_total", state="infected") == 2
    assert metrics.value("pkgrepo_scanner_up") == 1
    assert metrics.value("pkgrepo_scans_waiting") == 0


async def test_a_check_has_the_fields_that_gates_read(settings: UploadSettings, database: MongoDatabase) -> None:
    caller = make_uploader()
    await linked(settings, caller, v1=b"one")
    await make_scans(database, settings, FixedScanner()).run_due()
    check = (await checks_of(settings, caller, "v1"))["v1"]
    assert set(check) == {"sha256", "scan", "signature"}
    assert check["scan"].pop("at")
    assert check["scan"] == {
        "state": "clean",
        "reason": "",
        "engine": "Engine 1",
        "signatures": "2026-11-22T08:00:00+00:00",
        "sha256": sha256(b"one"),
    }
    assert set(check["signature"]) == {"state", "signer", "issuer", "signed_at", "revocation", "reason", "at"}


async def test_one_of_many_replicas_scans_a_file(settings: UploadSettings, database: MongoDatabase) -> None:
    files = {f"v{number}": b"%d" % number for number in range(8)}
    await linked(settings, make_uploader(), **files)
    scanner = FixedScanner()
    replicas = [make_scans(database, settings, scanner) for _ in range(4)]
    await asyncio.gather(*(replica.run_due() for replica in replicas))
    await asyncio.gather(*(replica.run_due() for replica in replicas))
    assert sorted(scanner.files) == sorted(files.values())


async def test_scans_alternate_between_tenants(settings: UploadSettings, database: MongoDatabase) -> None:
    scanner = FixedScanner()
    await linked(settings, make_uploader(), v1=b"1", v2=b"2", v3=b"3")
    await linked(settings, make_uploader(), v1=b"other")
    await make_scans(database, settings, scanner).run_due()
    assert b"other" in scanner.files[:2]
    assert [content for content in scanner.files if content != b"other"] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("failure", [ScanFailed("clamd answers ERROR"), OSError(5, "/secret/path"), TimeoutError()])
async def test_a_failed_scan_is_not_clean_and_is_repeated_later(
    settings: UploadSettings, database: MongoDatabase, failure: Exception
) -> None:
    caller, scanner = make_uploader(), FixedScanner(failure=failure)
    await linked(settings, caller, v1=b"one")
    scans = make_scans(database, settings, scanner)
    await scans.run_due()
    await scans.run_due()
    assert len(scanner.files) == 1  # It is not due yet.
    scan = (await checks_of(settings, caller, "v1"))["v1"]["scan"]
    assert scan["state"] == "failed"
    assert "secret" not in scan["reason"]
    scanner.failure = None
    await expire_leases(database)
    await scans.run_due()
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "clean"


async def test_an_unusable_scanner_leaves_all_files_pending(settings: UploadSettings, database: MongoDatabase) -> None:
    caller, scanner = make_uploader(), FixedScanner(check_failure=ScanFailed("away"))
    await linked(settings, caller, v1=b"one")
    await make_scans(database, settings, scanner).run_due()
    assert scanner.files == []
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "pending"


async def test_a_scanner_that_hangs_gives_no_verdict(settings: UploadSettings, database: MongoDatabase) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_stream(reader)
        await reader.read()

    caller = make_uploader()
    await linked(settings, caller, v1=b"one")
    async with fake_clamd(hang) as url:
        await make_scans(database, settings, scanner_at(url), timeout=0.1).run_due()
    scan = (await checks_of(settings, caller, "v1"))["v1"]["scan"]
    assert (scan["state"], scan["reason"][:34]) == ("failed", "the scanner did not answer within ")


async def test_a_file_over_the_limit_is_never_sent(settings: UploadSettings, database: MongoDatabase) -> None:
    caller, scanner = make_uploader(), FixedScanner()
    await linked(settings, caller, v1=bytes(11), v2=bytes(10))
    await make_scans(database, settings, scanner, limit=10).run_due()
    checks = await checks_of(settings, caller, "v1", "v2")
    assert scanner.files == [bytes(10)]
    assert {uid: check["scan"]["state"] for uid, check in checks.items()} == {"v1": "too_large", "v2": "clean"}


async def _alter(settings: UploadSettings, change: Callable[[bytes], bytes]) -> None:
    for path in settings.installers.glob("*/*"):
        if path.is_file() and not path.parent.name.startswith("."):
            path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize("change", [lambda data: data[:-1] + b"!", lambda data: data[:-1], lambda data: b""])
async def test_a_verdict_about_other_bytes_than_uploaded_is_not_stored(
    settings: UploadSettings, database: MongoDatabase, change: Callable[[bytes], bytes]
) -> None:
    caller, scanner = make_uploader(), FixedScanner()
    await linked(settings, caller, v1=b"one")
    await _alter(settings, change)
    await make_scans(database, settings, scanner).run_due()
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "failed"


async def test_a_scanner_that_is_away_is_reported_while_no_file_waits(settings: UploadSettings) -> None:
    with capture_logs() as logs:
        async with serving_uploads(settings.model_copy(update={"scanner_url": FAR})) as api:
            assert (await api.metrics()).value("pkgrepo_scanner_up") == 0
    (entry,) = [entry for entry in logs if entry["event"] == "scanner_unusable"]
    assert entry["reason"].startswith("clamd is not reached")


@dataclass
class LazyScanner(FixedScanner):
    """Answers before it has read the file."""

    async def scan(self, upload: Upload, blocks: AsyncIterator[bytes]) -> Verdict:
        return self.verdict


async def test_a_verdict_about_a_part_of_the_file_is_not_stored(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller = make_uploader()
    await linked(settings, caller, v1=b"one")
    await make_scans(database, settings, LazyScanner()).run_due()
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "failed"


async def test_the_old_verdict_counts_until_there_is_a_new_one(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller, scanner, store = make_uploader(), FixedScanner(), MongoScanStore(database)
    await linked(settings, caller, v1=b"one")
    scans = make_scans(database, settings, scanner)
    await scans.run_due()
    assert await store.make_due(caller.tenant_id) == 1
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "clean"
    scanner.failure = ScanFailed("away")
    await scans.run_due()
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "clean"
    scanner.failure, scanner.verdict = None, Verdict(ScanState.INFECTED, "Evil")
    await expire_leases(database)
    await scans.run_due()
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "infected"


async def test_an_infected_file_stays_infected_under_a_lower_limit(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller, scanner = make_uploader(), FixedScanner(Verdict(ScanState.INFECTED, "Evil"))
    await linked(settings, caller, v1=b"one")
    await make_scans(database, settings, scanner).run_due()
    await MongoScanStore(database).make_due(caller.tenant_id)
    await make_scans(database, settings, scanner, limit=1).run_due()
    scan = (await checks_of(settings, caller, "v1"))["v1"]["scan"]
    assert (scan["state"], scan["reason"]) == ("infected", "Evil")


async def test_a_repeat_for_one_tenant_leaves_other_tenants_alone(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    one, other, scanner = make_uploader(), make_uploader(), FixedScanner()
    await linked(settings, one, v1=b"one")
    await linked(settings, other, v1=b"other")
    scans = make_scans(database, settings, scanner)
    await scans.run_due()
    await MongoScanStore(database).make_due(one.tenant_id)
    await scans.run_due()
    assert sorted(scanner.files) == [b"one", b"one", b"other"]


async def test_a_file_older_than_scans_is_scanned_when_it_is_asked_for(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller, scanner = make_uploader(), FixedScanner()
    async with serving_uploads(settings) as api:
        await api.claim(caller, await api.upload(caller, b"old"), "v1")
        assert (await installer_checks(api, caller, "v1"))["v1"]["scan"]["state"] == "off"
    scans = make_scans(database, settings, scanner)
    await scans.run_due()
    assert scanner.files == []
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "pending"
    await scans.run_due()
    assert scanner.files == [b"old"]


async def test_a_text_of_the_scanner_is_no_expression_of_the_database(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller, scanner = make_uploader(), FixedScanner(Verdict(ScanState.INFECTED, "$sha256"))
    await linked(settings, caller, v1=b"one")
    await make_scans(database, settings, scanner).run_due()
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["reason"] == "$sha256"


async def test_no_tenant_reads_the_checks_of_another(settings: UploadSettings, database: MongoDatabase) -> None:
    await linked(settings, make_uploader(), v1=b"one")
    await make_scans(database, settings, FixedScanner(Verdict(ScanState.INFECTED, "Evil"))).run_due()
    async with serving_uploads(settings) as api:
        other = make_uploader()
        assert await installer_checks(api, other, "v1") == {}
        assert (await api.post(other, "infected_installers")).body == {"installers": []}


@pytest.mark.parametrize("hangs", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_an_http_scanner_that_does_not_read_the_file_gives_no_verdict(
    settings: UploadSettings, database: MongoDatabase, hangs: bool
) -> None:
    content, released = bytes(8 << 20), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"engine": "Hasty"})
        if hangs:
            await released.wait()
        return web.json_response({"state": "clean", "sha256": sha256(content)})

    app = web.Application()
    app.router.add_route("*", "/", answer)
    caller = make_uploader()
    await linked(settings, caller, v1=content)
    async with serving(app, "127.0.0.1:0") as address:
        scanner, timeout = scanner_at(f"{address}/"), 0.1 if hangs else 60
        await make_scans(database, settings, scanner, limit=16 << 20, timeout=timeout).run_due()
        released.set()
    assert (await checks_of(settings, caller, "v1"))["v1"]["scan"]["state"] == "failed"
