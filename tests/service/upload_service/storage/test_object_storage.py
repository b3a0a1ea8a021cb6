"""Object storage: uploads are moved to it and served from it, and wait while it is unavailable."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import ClientPayloadError
from yarl import URL

from common.auth.downloads import site_expiry
from common.auth.internal_tokens import Caller
from common.http.zero_copy.responses import splice
from common.mongo import MongoDatabase, open_database
from tests.support.api import Answer
from tests.support.servers.clamd import answers, fake_clamd
from tests.support.servers.object_storage import ObjectServer
from tests.support.servers.proxy import run_proxy
from tests.support.services.upload import UploadApi, make_uploader, serving_uploads, settings_for, sha256
from tests.support.wait import until
from upload_service.model import Damage, StorageKind, Upload
from upload_service.quota.store import MongoQuotaStore
from upload_service.scanning.store import MongoScanStore
from upload_service.storage.s3 import S3Storage
from upload_service.uploads.claims import forget_tenant
from upload_service.uploads.store import MongoUploadStore

FILE = bytes(range(256)) * 20
ETAG = f'"{sha256(FILE)}"'
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
REQUESTS: list[dict[str, str]] = [
    {},
    {"method": "HEAD"},
    {"Range": "bytes=0-0"},
    {"Range": "bytes=100-299"},
    {"Range": "bytes=5000-"},
    {"Range": "bytes=-10"},
    {"Range": "bytes=-9999"},
    {"Range": "bytes=5100-9999"},
    {"Range": "bytes=0-99", "method": "HEAD"},
    {"Range": "bytes=5120-"},
    {"Range": "bytes=-0"},
    {"Range": "bytes=9-3"},
    {"Range": "bytes=0-1,5-6"},
    {"Range": "bytes=0-9", "If_Range": ETAG},
    {"Range": "bytes=0-9", "If_Range": '"other"'},
    {"If_None_Match": ETAG},
    {"If_None_Match": '"other"'},
    {"If_Match": '"other"'},
]
IGNORED_HEADERS = {"date", "server", "x-request-id"}


@dataclass(frozen=True)
class Setup:
    """A service, its records, and the object storage to which it moves installers."""

    api: UploadApi
    database: MongoDatabase
    objects: S3Storage

    async def upload(self, content: bytes = FILE, *, wait: bool = True) -> tuple[Caller, str]:
        """A linked installer that was moved."""
        caller = make_uploader()
        name = await self.api.upload(caller, content, name="setup.exe")
        assert (await self.api.claim(caller, name)).status == 200
        if wait:
            await self.until_moved(caller)
        return caller, name

    async def let_time_pass(self) -> None:
        await self.database["uploads"].update_many({}, {"$set": {"updated_at": LONG_AGO}})

    async def until_moved(self, caller: Caller) -> None:
        await self.let_time_pass()

        async def moved() -> bool:
            record = await self.record(caller)
            return record["home"] == StorageKind.S3 and not record["left"]

        await until(moved)

    async def record(self, caller: Caller) -> dict[str, Any]:
        document = await self.database["uploads"].find_one({"tenant_id": caller.tenant_id})
        assert document is not None
        return document

    async def size(self, caller: Caller, name: str) -> int | None:
        """The size of the object."""
        return await self.objects.size(Upload(caller.tenant_id, "f", "u", 0, server_filename=name))


@asynccontextmanager
async def serving_with_objects(
    mongo_url: str, folder: Path, server: ObjectServer, **settings: Any
) -> AsyncIterator[Setup]:
    upload_settings = settings_for(
        mongo_url, folder, installer_storage=StorageKind.S3, **server.settings(uuid4().hex), **settings
    )
    assert upload_settings.object_storage is not None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("upload_service.app.MOVING_PAUSE", 0.05)
        async with (
            serving_uploads(upload_settings) as api,
            open_database(mongo_url, upload_settings.database) as database,
        ):
            yield Setup(api, database, S3Storage(upload_settings.object_storage))


@pytest.fixture(scope="module")
async def setup(
    mongo_url: str, tmp_path_factory: pytest.TempPathFactory, object_server: ObjectServer
) -> AsyncIterator[Setup]:
    async with serving_with_objects(mongo_url, tmp_path_factory.mktemp("installers"), object_server) as served:
        yield served


@pytest.fixture(scope="module")
async def redirecting(
    mongo_url: str, tmp_path_factory: pytest.TempPathFactory, object_server: ObjectServer
) -> AsyncIterator[Setup]:
    folder = tmp_path_factory.mktemp("installers")
    async with serving_with_objects(mongo_url, folder, object_server, s3_redirect=True) as served:
        yield served


@pytest.fixture
def stopped_server(new_object_server: Callable[[], ObjectServer]) -> Iterator[ObjectServer]:
    """An object storage with a known port that a test starts later."""
    server = new_object_server()
    server.start()
    server.make_bucket()
    server.stop()
    yield server
    server.remove()


@pytest.fixture
async def away(
    mongo_url: str,
    database: MongoDatabase,
    tmp_path: Path,
    stopped_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Setup]:
    """A setup without a running object storage."""
    monkeypatch.setattr("upload_service.app.COLLECTION_PAUSE", 0.05)
    async with serving_with_objects(mongo_url, tmp_path, stopped_server, database=database.name) as served:
        yield served


def observable(answer: Answer) -> tuple[int, Any, dict[str, str]]:
    headers = {name: value for name, value in answer.headers.items() if name.lower() not in IGNORED_HEADERS}
    body = answer.body if isinstance(answer.body, bytes) else answer.body["code"]
    return answer.status, body, headers


async def test_a_download_is_the_same_before_and_after_the_file_has_moved(setup: Setup) -> None:
    caller, name = await setup.upload(wait=False)
    address = setup.api.address(caller, name)
    before = [observable(await setup.api.get(address, **request)) for request in REQUESTS]
    await setup.until_moved(caller)
    assert setup.api.files(caller) == []
    assert await setup.size(caller, name) == len(FILE)
    after = [observable(await setup.api.get(address, **request)) for request in REQUESTS]
    for request, first, second in zip(REQUESTS, before, after, strict=True):
        assert first == second, request
    assert before[0][:2] == (200, FILE)


@pytest.mark.parametrize("home", [StorageKind.FOLDER, pytest.param(StorageKind.S3, marks=pytest.mark.full)])
async def test_a_client_that_disconnects_is_not_logged_as_an_error(
    setup: Setup, home: StorageKind, capsys: pytest.CaptureFixture[str]
) -> None:
    content = b"".join(number.to_bytes(8, "big") for number in range(1 << 20))
    caller, name = await setup.upload(content, wait=home is StorageKind.S3)
    for _ in range(3):
        async with setup.api.service.session.get(setup.api.address(caller, name)) as answer:
            assert await answer.content.readexactly(1000) == content[:1000]
            answer.close()
    assert sha256((await setup.api.get(setup.api.address(caller, name))).body) == sha256(content)
    log = capsys.readouterr().out
    assert "crashed" not in log
    assert "broke_off" not in log


async def test_repeated_chunks_are_compared_with_a_moved_file(setup: Setup) -> None:
    caller = make_uploader()
    complete = await setup.api.chunk(caller, "f", FILE, 0, len(FILE))
    await setup.api.claim(caller, complete.body["server_filename"])  # The collector removes old unclaimed files.
    await setup.until_moved(caller)
    assert (await setup.api.chunk(caller, "f", FILE, 0, len(FILE))).status == 200
    other = await setup.api.chunk(caller, "f", bytes(len(FILE)), 0, len(FILE))
    assert (other.status, other.body["code"]) == (400, "unexpected_chunk")


async def test_uploads_continue_without_object_storage_and_move_once_it_is_back(
    away: Setup, stopped_server: ObjectServer
) -> None:
    uploads = [await away.upload(wait=False) for _ in range(3)]
    await away.api.chunk(uploads[0][0], "f", FILE[:10], 0, len(FILE))
    assert (await away.api.cancel(uploads[0][0], "f")).status == 200
    for caller, name in uploads:
        assert (await away.api.get(away.api.address(caller, name))).body == FILE
        assert away.api.files(caller) == [name]
    stopped_server.start()
    for caller, name in uploads:
        await away.until_moved(caller)
        assert (await away.api.get(away.api.address(caller, name))).body == FILE
        assert away.api.files(caller) == []


async def test_a_moved_file_is_unavailable_without_object_storage(
    away: Setup, stopped_server: ObjectServer, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped_server.start()
    caller, name = await away.upload()
    stopped_server.stop()
    answer = await away.api.get(away.api.address(caller, name))
    assert (answer.status, answer.body["code"]) == (500, "dependency_unavailable")
    assert answer.headers["Retry-After"]
    log = capsys.readouterr().out
    assert "object_storage_failed" in log
    assert stopped_server.secret not in log
    assert stopped_server.key_id not in log


async def test_a_file_released_without_object_storage_is_removed_later(
    away: Setup, stopped_server: ObjectServer
) -> None:
    stopped_server.start()
    caller, name = await away.upload()
    stopped_server.stop()
    assert (await away.api.post(caller, "release_installers", version_uids=["v1"])).status == 200
    assert (await away.api.get(away.api.address(caller, name))).status == 404
    stopped_server.start()
    assert await away.size(caller, name) == len(FILE)
    await away.let_time_pass()

    async def is_removed() -> bool:
        return await away.size(caller, name) is None and await away.api.usage(caller) == (0, 0)

    await until(is_removed)


async def test_a_released_file_and_a_deleted_tenant_have_no_objects(setup: Setup) -> None:
    (released, name), (deleted, _), (other, remaining) = [await setup.upload() for _ in range(3)]
    assert (await setup.api.post(released, "release_installers", version_uids=["v1"])).status == 200
    assert (await setup.size(released, name), await setup.api.usage(released)) == (None, (0, 0))
    homes: Any = [setup.objects]
    await forget_tenant(deleted.tenant_id, homes, MongoUploadStore(setup.database), MongoQuotaStore(setup.database))
    assert [file.tenant_id async for file in setup.objects.list_files() if file.tenant_id == deleted.tenant_id] == []
    assert await setup.size(other, remaining) == len(FILE)


@pytest.mark.parametrize(
    ("damage", "code"), [(Damage.ALTERED, "installer_damaged"), (Damage.MISSING, "installer_missing")]
)
async def test_a_file_known_to_be_damaged_is_refused(setup: Setup, damage: Damage, code: str) -> None:
    caller, name = await setup.upload()
    await setup.database["uploads"].update_one({"tenant_id": caller.tenant_id}, {"$set": {"damage": damage}})
    answer = await setup.api.get(setup.api.address(caller, name))
    assert (answer.status, answer.body["code"]) == (404, code)


@pytest.mark.parametrize("content", [None, b"", FILE + b"x"], ids=["gone", "empty", "longer"])
async def test_a_missing_or_truncated_object_is_not_served(setup: Setup, tmp_path: Path, content: bytes | None) -> None:
    caller, name = await setup.upload()
    await replaced(setup, tmp_path, caller, name, content)
    answer = await setup.api.get(setup.api.address(caller, name))
    assert (answer.status, answer.body["code"]) == (404, "installer_missing")


async def test_an_interrupted_download_does_not_look_complete(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, name = await setup.upload()
    await replaced(setup, tmp_path, caller, name, FILE[:-100])

    async def as_recorded(*_: object) -> int:
        return len(FILE)

    monkeypatch.setattr(S3Storage, "size", as_recorded)
    with pytest.raises(ClientPayloadError):
        await setup.api.get(setup.api.address(caller, name))


async def replaced(setup: Setup, tmp_path: Path, caller: Caller, name: str, content: bytes | None) -> None:
    """Replace an object with other bytes."""
    upload = Upload(caller.tenant_id, "f", "u", 0, server_filename=name)
    await setup.objects.remove(upload)
    if content is not None:
        (tmp_path / "other").write_bytes(content)
        await setup.objects.put(upload, tmp_path / "other")


@pytest.mark.full
async def test_a_download_continues_if_the_object_storage_breaks_off(
    mongo_url: str, tmp_path: Path, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, broken = os.urandom(24 << 20), list[type[BaseException]]()

    async def splice_and_record(*arguments: Any, **options: Any) -> None:
        try:
            await splice(*arguments, **options)
        except BaseException as error:
            broken.append(type(error))
            raise

    monkeypatch.setattr("upload_service.downloads.routes.splice", splice_and_record)
    async with run_proxy(f"127.0.0.1:{object_server.port}") as network:
        server = replace(object_server, port=int(network.address.rpartition(":")[2]))
        async with serving_with_objects(mongo_url, tmp_path, server) as setup:
            caller, name = await setup.upload(content)
            async with setup.api.service.session.get(setup.api.address(caller, name)) as answer:
                received = await answer.content.readexactly(100_000)
                await network.reset_connections()
                received += await answer.content.read()
    assert sha256(received) == sha256(content)
    assert broken == [EOFError]


async def test_a_file_that_moves_after_its_record_was_read_is_found(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, name = await setup.upload(wait=False)
    before = await MongoUploadStore(setup.database).find_installer(caller.tenant_id, name)
    await setup.until_moved(caller)
    find_installer = MongoUploadStore.find_installer
    answers = [before]

    async def late(store: MongoUploadStore, tenant_id: str, server_filename: str) -> Upload | None:
        return answers.pop() if answers else await find_installer(store, tenant_id, server_filename)

    monkeypatch.setattr(MongoUploadStore, "find_installer", late)
    answer = await setup.api.get(setup.api.address(caller, name))
    assert (answer.status, answer.body) == (200, FILE)
    assert not answers


async def test_a_download_can_be_redirected_to_object_storage(redirecting: Setup, object_server: ObjectServer) -> None:
    caller, name = await redirecting.upload()
    address = redirecting.api.address(caller, name)
    async with redirecting.api.service.session.get(address, allow_redirects=False) as response:
        assert (response.status, response.headers["Cache-Control"]) == (307, "no-store")
        location = URL(response.headers["Location"], encoded=True)
    assert location.query["X-Amz-Expires"] == "300"
    assert location.path.endswith(f"/{caller.tenant_id}/{name}")
    assert object_server.secret not in str(location)
    whole = await redirecting.api.get(address)
    assert (whole.status, whole.body) == (200, FILE)
    assert whole.headers["Content-Type"] == "application/octet-stream"
    assert whole.headers["Content-Disposition"] == "attachment"
    part = await redirecting.api.get(address, Range="bytes=10-19")
    assert (part.status, part.body) == (206, FILE[10:20])
    head = await redirecting.api.get(address, method="HEAD")
    assert (head.status, head.headers["Content-Length"]) == (200, str(len(FILE)))


async def test_the_download_of_a_site_is_not_redirected(redirecting: Setup) -> None:
    caller, name = await redirecting.upload()
    address = redirecting.api.address(caller, name, expires=site_expiry(60))
    async with redirecting.api.service.session.get(address, allow_redirects=False) as response:
        assert (response.status, await response.read()) == (200, FILE)


async def test_a_redirect_for_the_last_byte_counts_as_download(redirecting: Setup) -> None:
    caller, name = await redirecting.upload()
    address = redirecting.api.address(caller, name)
    for request in ({"method": "HEAD"}, {"Range": "bytes=10-19"}, {"If_None_Match": ETAG}, {"Range": "bytes=9999-"}):
        await redirecting.api.get(address, **request)
    counter = {"name": "pkgrepo_downloads_total", "tenant_id": caller.tenant_id}
    segments, client = URL(address).parts[2:], caller.as_client("pc-1")
    await redirecting.api.service.call(client, "GET", *segments, params=URL(address).query, allow_redirects=False)

    async def is_counted() -> bool:
        return (await redirecting.api.metrics()).value(**counter) > 0

    await until(is_counted)
    assert (await redirecting.api.metrics()).value(**counter) == 1


async def test_a_file_in_the_folder_is_not_redirected(redirecting: Setup) -> None:
    caller, name = await redirecting.upload(wait=False)
    address = redirecting.api.address(caller, name)
    async with redirecting.api.service.session.get(address, allow_redirects=False) as answer:
        assert (answer.status, await answer.read()) == (200, FILE)


async def test_a_missing_or_withheld_object_is_not_redirected_to(redirecting: Setup, tmp_path: Path) -> None:
    missing, withheld = [await redirecting.upload() for _ in range(2)]
    await replaced(redirecting, tmp_path, *missing, None)
    change = {"uid": "v1", "withheld": True, "fence": 1}
    assert (await redirecting.api.post(withheld[0], "withhold_installers", versions=[change])).status == 200
    for upload, code in ((missing, "installer_missing"), (withheld, "installer_withheld")):
        address = redirecting.api.address(*upload)
        answer = await redirecting.api.get(address)
        assert (answer.status, answer.body["code"]) == (404, code)
        async with redirecting.api.service.session.head(address, allow_redirects=False) as head:
            assert head.status == 404


async def test_a_file_in_object_storage_is_scanned(mongo_url: str, tmp_path: Path, object_server: ObjectServer) -> None:
    async with (
        fake_clamd(answers(b"stream: Evil FOUND\0")) as url,
        serving_with_objects(mongo_url, tmp_path, object_server, scanner_url=url) as setup,
    ):
        caller, _ = await setup.upload()
        await setup.database["uploads"].update_many({}, {"$unset": {"scan": ""}})
        await MongoScanStore(setup.database).make_due(caller.tenant_id)

        async def is_scanned() -> bool:
            return bool((await setup.record(caller)).get("scan", {}).get("state") == "infected")

        await until(is_scanned)
        assert (await setup.record(caller))["scan"]["sha256"] == sha256(FILE)


async def test_a_deleted_upload_is_gone_for_versions_before_its_file(away: Setup, stopped_server: ObjectServer) -> None:
    caller = make_uploader()
    name = await away.api.upload(caller, FILE)

    async def delete() -> int:
        return (await away.api.service.call(caller, "DELETE", "delete_upload", name)).status

    async def is_gone() -> bool:
        return await delete() == 404

    for _ in range(2):
        assert await delete() == 200
        assert (await away.api.claim(caller, name)).status == 404
        assert await away.api.usage(caller) == (0, len(FILE))
    stopped_server.start()
    await until(is_gone)
    assert await away.api.usage(caller) == (0, 0)
