"""`pkgrepo publish` while other clients change its file, transfer or version."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from catalog_service.model.enumerations import Architecture, FileType
from common.errors import Problem, UpstreamProblem
from common.mongo import open_database
from deploy.publish.client import RetryingClient, TransferState
from deploy.publish.model import GENERATIONS, Installer, NotPublished, Published
from deploy.publish.publisher import Publisher
from deploy.terminal import FileProgress
from tests.support.processes.publish_command import open_cli_client
from tests.support.system.publishing import INSTALLER, add_package, download, package_id, send_chunk
from tests.support.system.services import Api, Services
from upload_service.maintenance.store import MongoScrubStore
from upload_service.model import Damage

CHUNK = 64 << 10


class Interrupted(RetryingClient):
    """Runs an action once, before the second chunk, or before the version is created."""

    before_chunk: Callable[[], Awaitable[object]] | None = None
    before_version: Callable[[], Awaitable[object]] | None = None

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


@dataclass(frozen=True)
class Run:
    """Publishes a file of three chunks for a package without versions, and has what other clients do."""

    tenant: Api
    client: Interrupted
    installer: Installer
    stored: Path
    mongo_url: str

    @property
    def content(self) -> bytes:
        return self.installer.path.read_bytes()

    @property
    def file_ids(self) -> list[str]:
        return list(self.installer.file_ids(hashlib.sha256(self.content).hexdigest()))

    async def publish(self) -> Published | NotPublished:
        publisher = Publisher(self.client, lambda _: nullcontext(FileProgress()), CHUNK)
        [done] = await publisher.publish(self.installer.package_id, None, [self.installer])
        return done

    async def published(self) -> Published:
        """Publish the file. Its download must equal it."""
        done = await self.publish()
        assert isinstance(done, Published), done.problem.detail
        version = (await self.tenant.call("GET", "get_specific_package_version", done.uid)).body
        assert await download(self.tenant, version["INSTALLER_URL"]) == self.content
        return done

    async def refused(self) -> Problem:
        done = await self.publish()
        assert isinstance(done, NotPublished)
        return done.problem

    async def upload(self, file_id: str, content: bytes) -> str:
        answer = await send_chunk(self.tenant, file_id, content, 0, len(content))
        assert answer.status == 200, answer.body
        return str(answer.body["server_filename"])

    async def add_version(self, content: bytes, *, file_id: str = "theirs", version: str = "1") -> str:
        form = {**INSTALLER, "package_version": version, "server_filename": await self.upload(file_id, content)}
        answer = await self.tenant.call("POST", "add_package_version", self.installer.package_id, data=form)
        assert answer.status == 201, answer.body
        return str(answer.body["UID"])

    async def cancel(self) -> None:
        await self.tenant.call("DELETE", "upload_package_version", headers={"X-File-ID": self.file_ids[0]})

    async def damage(self) -> None:
        """Alter all stored files of the tenant, and record the damage."""
        async with open_database(self.mongo_url, "upload") as database:
            store = MongoScrubStore(database)
            async for stored in store.complete_uploads(self.tenant.tenant_id):
                (self.stored / self.tenant.tenant_id / stored.server_filename).write_bytes(b"\0" * stored.size)
                assert await store.mark_damaged(stored, Damage.ALTERED)

    async def versions(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (
            await self.tenant.call("GET", "get_package_versions", self.installer.package_id)
        ).body
        return rows


@pytest.fixture
async def run(tenant: Api, services: Services, mongo_url: str, tmp_path: Path) -> AsyncIterator[Run]:
    path, name = tmp_path / "setup.exe", package_id()
    path.write_bytes(os.urandom(3 * CHUNK))
    await add_package(tenant, name)
    installer = Installer(path, name, "1", Architecture.X64, FileType.EXE)
    async with open_cli_client(tenant) as client:
        yield Run(tenant, Interrupted(client, retry_timeout=20), installer, services.installers, mongo_url)


async def test_two_concurrent_runs_add_one_version(run: Run) -> None:
    done = await asyncio.gather(*(run.published() for _ in range(3)))
    assert [version["UID"] for version in await run.versions()] == [done[0].uid]
    assert {version.uid for version in done} == {done[0].uid}


async def test_a_chunk_sent_by_another_client_is_not_sent_again(run: Run) -> None:
    content, file_id = run.content, run.file_ids[0]
    run.client.before_chunk = lambda: send_chunk(run.tenant, file_id, content, CHUNK, CHUNK + 1000)
    await run.published()


async def test_a_complete_file_is_not_sent_again(run: Run) -> None:
    await run.upload(run.file_ids[0], run.content)
    done = await run.published()
    assert (done.resumed_from, done.created) == (3 * CHUNK, True)


async def use_for_another_version(run: Run) -> None:
    await run.add_version(run.content, file_id=run.file_ids[0], version="theirs")


async def damage_before_the_version(run: Run) -> None:
    await run.upload(run.file_ids[0], run.content)
    await run.damage()


async def send_other_bytes(run: Run) -> None:
    await run.upload(run.file_ids[0], os.urandom(3 * CHUNK))
    await send_chunk(run.tenant, run.file_ids[1], os.urandom(3 * CHUNK), 0, CHUNK)


UNUSABLE = (use_for_another_version, damage_before_the_version, Run.cancel, send_other_bytes)


@pytest.mark.parametrize("prepare", UNUSABLE, ids=lambda prepare: prepare.__name__)
async def test_a_file_id_that_cannot_be_used_is_replaced(run: Run, prepare: Callable[[Run], Awaitable[None]]) -> None:
    await prepare(run)
    done = await run.published()
    assert (done.resumed_from, done.created) == (0, True)


async def test_a_file_that_the_server_has_lost_is_sent_under_another_id(run: Run) -> None:
    async def lose_the_file() -> None:
        raise UpstreamProblem("The file of this installer is missing.", status=404, code="installer_missing")

    run.client.before_version = lose_the_file
    await run.published()


async def test_an_upload_that_another_client_cancels_is_not_published(run: Run) -> None:
    run.client.before_chunk = run.cancel
    assert (await run.refused()).code == "upload_cancelled"
    assert (await run.tenant.call("GET", "server_information")).body["storage_reserved"] == 0


async def test_a_version_with_a_damaged_file_must_be_deleted_first(run: Run) -> None:
    first = await run.published()
    await run.damage()
    refused = await run.refused()
    assert refused.code == "installer_damaged"
    assert f"delete the version (UID {first.uid}) and publish it again" in refused.detail
    form = {"versions_uids": first.uid}
    await run.tenant.call("DELETE", "delete_package_version", run.installer.package_id, data=form)
    await run.published()


async def test_other_bytes_under_all_its_ids_are_reported(run: Run) -> None:
    assert len(run.file_ids) == GENERATIONS
    for file_id in run.file_ids:
        await run.upload(file_id, b"x" * 3 * CHUNK)
    assert (await run.refused()).code == "stored_differently"


async def test_a_file_that_changes_while_it_is_sent_is_not_published(run: Run) -> None:
    async def change_the_file() -> None:
        run.installer.path.write_bytes(os.urandom(3 * CHUNK + 1))

    run.client.before_chunk = change_the_file
    assert (await run.refused()).code == "file_changed"
    assert await run.versions() == []


async def test_another_clients_version_is_reported_in_the_servers_words(run: Run) -> None:
    run.client.before_version = lambda: run.add_version(b"others")
    refused = await run.refused()
    assert (refused.status, refused.code) == (409, "version_exists")
    assert refused.detail == "The package has version '1' already."


async def test_another_clients_version_of_the_same_bytes_is_a_success(run: Run) -> None:
    run.client.before_version = lambda: run.add_version(run.content)
    done = await run.published()
    assert ([version["UID"] for version in await run.versions()], done.created) == ([done.uid], False)


async def test_a_damaged_version_of_another_client_is_an_error(run: Run) -> None:
    async def add_a_damaged_version() -> None:
        await run.add_version(run.content)
        await run.damage()

    run.client.before_version = add_a_damaged_version
    refused = await run.refused()
    assert (refused.status, refused.code) == (409, "installer_damaged")


async def test_a_package_deleted_during_the_run_is_reported(run: Run) -> None:
    run.client.before_version = lambda: run.tenant.call("DELETE", "delete_package", run.installer.package_id)
    assert (await run.refused()).code == "package_not_found"
