"""`pkgrepo publish` while other clients change its session, file, transfer or version."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from catalog_service.model.enumerations import Architecture, FileType
from common.errors import UpstreamProblem
from common.mongo import open_database
from deploy.publish.client import HttpClient, RetryingClient, TransferState
from deploy.publish.model import GENERATIONS, Installer, NotPublished, Published
from deploy.publish.publisher import Publisher
from deploy.terminal import FileProgress
from tests.support.processes.publish_command import open_cli_client
from tests.support.system.publishing import INSTALLER, add_package, download, package_id, send_chunk
from tests.support.system.services import Api, Services
from upload_service.maintenance.store import MongoScrubStore
from upload_service.model import Damage

CHUNK = 64 << 10
Meanwhile = Callable[[], Awaitable[object]]


class Interrupted(RetryingClient):
    """Runs an action once, before the second chunk, or before the version is created."""

    before_chunk: Meanwhile | None = None
    before_version: Meanwhile | None = None

    async def send_chunk(
        self, file_id: str, start: int, total: int, content: bytes, suffix: str, progress: Callable[[int], None]
    ) -> TransferState:
        if start and self.before_chunk:
            meanwhile, self.before_chunk = self.before_chunk, None
            await meanwhile()
        return await super().send_chunk(file_id, start, total, content, suffix, progress)

    async def add_version(self, installer: Installer, **where: str) -> str:
        if self.before_version:
            meanwhile, self.before_version = self.before_version, None
            await meanwhile()
        return await super().add_version(installer, **where)


@pytest.fixture
async def http_client(tenant: Api) -> AsyncIterator[HttpClient]:
    async with open_cli_client(tenant) as opened:
        yield opened


@pytest.fixture
def client(http_client: HttpClient) -> Interrupted:
    return Interrupted(http_client, retry_timeout=20)


@pytest.fixture
async def installer(tenant: Api, tmp_path: Path) -> Installer:
    """A file of three chunks, for a package without versions."""
    path, name = tmp_path / "setup.exe", package_id()
    path.write_bytes(os.urandom(3 * CHUNK))
    await add_package(tenant, name)
    return Installer(path, name, "1", Architecture.X64, FileType.EXE)


@pytest.fixture
def damage(services: Services, mongo_url: str, tenant: Api) -> Meanwhile:
    """Alters all stored files of the tenant, and records the damage."""

    async def damage() -> None:
        async with open_database(mongo_url, "upload") as database:
            store = MongoScrubStore(database)
            async for stored in store.complete_uploads(tenant.tenant_id):
                (services.installers / tenant.tenant_id / stored.server_filename).write_bytes(b"\0" * stored.size)
                assert await store.mark_damaged(stored, Damage.ALTERED)

    return damage


def file_ids(installer: Installer) -> list[str]:
    return list(installer.file_ids(hashlib.sha256(installer.path.read_bytes()).hexdigest()))


async def publish(client: RetryingClient, installer: Installer) -> Published | NotPublished:
    publisher = Publisher(client, lambda _: nullcontext(FileProgress()), CHUNK)
    [done] = await publisher.publish(installer.package_id, None, [installer])
    return done


async def upload(tenant: Api, file_id: str, content: bytes) -> str:
    """Upload a file as another client. Returns its server filename."""
    answer = await send_chunk(tenant, file_id, content, 0, len(content))
    assert answer.status == 200, answer.body
    return str(answer.body["server_filename"])


async def add_version(tenant: Api, package: str, version: str, server_filename: str) -> str:
    """Add a version as another client. Returns its UID."""
    form = {**INSTALLER, "package_version": version, "server_filename": server_filename}
    answer = await tenant.call("POST", "add_package_version", package, data=form)
    assert answer.status == 201, answer.body
    return str(answer.body["UID"])


async def assert_whole(tenant: Api, done: Published | NotPublished) -> None:
    """Assert that the download equals the file."""
    assert isinstance(done, Published), done.problem.detail
    version = (await tenant.call("GET", "get_specific_package_version", done.uid)).body
    assert await download(tenant, version["INSTALLER_URL"]) == done.installer.path.read_bytes()


async def test_a_new_session_replaces_an_ended_one(
    tenant: Api, http_client: HttpClient, client: Interrupted, installer: Installer
) -> None:
    async def end_the_session() -> None:
        assert (await tenant.call("POST", "logout", data={"token": http_client.token})).status == 200

    client.before_chunk = end_the_session
    await assert_whole(tenant, await publish(client, installer))


async def test_a_run_with_an_expired_token_stops(tenant: Api, installer: Installer) -> None:
    token = (await tenant.signed_in()).headers["Authorization"].removeprefix("Bearer ")
    async with open_cli_client(tenant, token=token) as http_client:
        client = Interrupted(http_client, retry_timeout=20)
        client.before_chunk = lambda: tenant.call("POST", "logout", data={"token": token})
        done = await publish(client, installer)
    assert isinstance(done, NotPublished)
    assert done.problem.code == "not_authenticated"


async def test_the_commands_own_session_is_ended_afterwards(tenant: Api, installer: Installer) -> None:
    async with open_cli_client(tenant) as http_client:
        await publish(Interrupted(http_client, retry_timeout=20), installer)
        headers = {"Authorization": f"Bearer {http_client.token}"}
        assert (await tenant.call("GET", "test", headers=headers)).status == 200
    assert (await tenant.call("GET", "test", headers=headers)).status == 401


async def test_two_concurrent_runs_add_one_version(tenant: Api, client: Interrupted, installer: Installer) -> None:
    done = await asyncio.gather(*(publish(client, installer) for _ in range(3)))
    for version in done:
        await assert_whole(tenant, version)
    assert len({version.uid for version in done if isinstance(version, Published)}) == 1
    assert len((await tenant.call("GET", "get_package_versions", installer.package_id)).body) == 1


async def test_a_chunk_sent_by_another_client_is_not_sent_again(
    tenant: Api, client: Interrupted, installer: Installer
) -> None:
    content, [file_id, *_] = installer.path.read_bytes(), file_ids(installer)
    client.before_chunk = lambda: send_chunk(tenant, file_id, content, CHUNK, CHUNK + 1000)
    await assert_whole(tenant, await publish(client, installer))


async def test_a_complete_file_is_not_sent_again(tenant: Api, client: Interrupted, installer: Installer) -> None:
    await upload(tenant, file_ids(installer)[0], installer.path.read_bytes())
    done = await publish(client, installer)
    await assert_whole(tenant, done)
    assert isinstance(done, Published)
    assert (done.resumed_from, done.created) == (3 * CHUNK, True)


async def test_a_file_of_another_version_is_sent_under_another_id(
    tenant: Api, client: Interrupted, installer: Installer
) -> None:
    theirs = await upload(tenant, file_ids(installer)[0], installer.path.read_bytes())
    await add_version(tenant, installer.package_id, "theirs", theirs)
    done = await publish(client, installer)
    await assert_whole(tenant, done)
    assert isinstance(done, Published)
    assert done.resumed_from == 0


async def test_a_damaged_file_without_a_version_is_sent_under_another_id(
    tenant: Api, client: Interrupted, installer: Installer, damage: Meanwhile
) -> None:
    await upload(tenant, file_ids(installer)[0], installer.path.read_bytes())
    await damage()
    done = await publish(client, installer)
    await assert_whole(tenant, done)
    assert isinstance(done, Published)
    assert (done.resumed_from, done.created) == (0, True)


async def test_a_file_with_a_cancelled_upload_is_sent_under_another_id(
    tenant: Api, client: Interrupted, installer: Installer
) -> None:
    file_id = {"X-File-ID": file_ids(installer)[0]}
    assert (await tenant.call("DELETE", "upload_package_version", headers=file_id)).status == 404
    await assert_whole(tenant, await publish(client, installer))


async def test_an_upload_that_another_client_cancels_is_not_published(
    tenant: Api, client: Interrupted, installer: Installer
) -> None:
    file_id = {"X-File-ID": file_ids(installer)[0]}
    client.before_chunk = lambda: tenant.call("DELETE", "upload_package_version", headers=file_id)
    done = await publish(client, installer)
    assert isinstance(done, NotPublished)
    assert done.problem.code == "upload_cancelled"
    assert (await tenant.call("GET", "server_information")).body["storage_reserved"] == 0


async def test_a_file_that_the_server_has_lost_is_sent_under_another_id(
    tenant: Api, client: Interrupted, installer: Installer
) -> None:
    async def lose_the_file() -> None:
        raise UpstreamProblem("The file of this installer is missing.", status=404, code="installer_missing")

    client.before_version = lose_the_file
    await assert_whole(tenant, await publish(client, installer))


async def test_a_version_with_a_damaged_file_must_be_deleted_first(
    tenant: Api, client: Interrupted, installer: Installer, damage: Meanwhile
) -> None:
    first = await publish(client, installer)
    assert isinstance(first, Published)
    await damage()
    refused = await publish(client, installer)
    assert isinstance(refused, NotPublished)
    assert refused.problem.code == "installer_damaged"
    assert f"delete the version (UID {first.uid}) and publish it again" in refused.problem.detail
    await tenant.call("DELETE", "delete_package_version", installer.package_id, data={"versions_uids": first.uid})
    await assert_whole(tenant, await publish(client, installer))


async def test_a_damaged_version_of_another_client_is_an_error(
    tenant: Api, client: Interrupted, installer: Installer, damage: Meanwhile
) -> None:
    async def make_the_version() -> None:
        server_filename = await upload(tenant, "theirs", installer.path.read_bytes())
        await add_version(tenant, installer.package_id, "1", server_filename)
        await damage()

    client.before_version = make_the_version
    done = await publish(client, installer)
    assert isinstance(done, NotPublished)
    assert (done.problem.status, done.problem.code) == (409, "installer_damaged")


async def test_other_bytes_under_its_id_never_become_the_version(
    tenant: Api, client: Interrupted, installer: Installer
) -> None:
    await upload(tenant, file_ids(installer)[0], os.urandom(3 * CHUNK))
    await send_chunk(tenant, file_ids(installer)[1], os.urandom(3 * CHUNK), 0, CHUNK)
    await assert_whole(tenant, await publish(client, installer))


async def test_other_bytes_under_all_its_ids_are_reported(
    tenant: Api, client: Interrupted, installer: Installer
) -> None:
    assert len(file_ids(installer)) == GENERATIONS
    for file_id in file_ids(installer):
        await upload(tenant, file_id, b"x" * 3 * CHUNK)
    done = await publish(client, installer)
    assert isinstance(done, NotPublished)
    assert done.problem.code == "stored_differently"


async def test_a_file_that_changes_while_it_is_sent_is_not_published(
    tenant: Api, client: Interrupted, installer: Installer
) -> None:
    async def change_the_file() -> None:
        installer.path.write_bytes(os.urandom(3 * CHUNK + 1))

    client.before_chunk = change_the_file
    done = await publish(client, installer)
    assert isinstance(done, NotPublished)
    assert done.problem.code == "file_changed"
    assert (await tenant.call("GET", "get_package_versions", installer.package_id)).body == []


async def test_another_clients_version_is_reported_in_the_servers_words(
    tenant: Api, client: Interrupted, installer: Installer
) -> None:
    async def make_the_version() -> None:
        await add_version(tenant, installer.package_id, "1", await upload(tenant, "theirs", b"others"))

    client.before_version = make_the_version
    done = await publish(client, installer)
    assert isinstance(done, NotPublished)
    assert (done.problem.status, done.problem.code) == (409, "version_exists")
    assert done.problem.detail == "The package has version '1' already."


async def test_another_clients_version_of_the_same_bytes_is_a_success(
    tenant: Api, client: Interrupted, installer: Installer
) -> None:
    uids: list[str] = []

    async def make_the_version() -> None:
        server_filename = await upload(tenant, "theirs", installer.path.read_bytes())
        uids.append(await add_version(tenant, installer.package_id, "1", server_filename))

    client.before_version = make_the_version
    done = await publish(client, installer)
    assert isinstance(done, Published)
    assert (done.uid, done.created) == (uids[0], False)


async def test_a_package_deleted_during_the_run_is_reported(
    tenant: Api, client: Interrupted, installer: Installer
) -> None:
    client.before_version = lambda: tenant.call("DELETE", "delete_package", installer.package_id)
    done = await publish(client, installer)
    assert isinstance(done, NotPublished)
    assert done.problem.code == "package_not_found"
