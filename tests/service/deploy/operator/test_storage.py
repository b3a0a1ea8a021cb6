"""`pkgrepo storage migrate` while replicas move files too, and `pkgrepo scrub` with unreadable objects."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest
import typer

from common.errors import Unavailable
from common.mongo import MongoDatabase, open_database
from deploy.cli import maintenance
from deploy.cli import migrate as cli_migrate
from deploy.cli.maintenance import ScrubRun
from deploy.cli.migrate import StorageMigration
from deploy.local.folder import Addresses
from deploy.operator.stores import Storage, StoreAddresses
from tests.support.servers.object_faults import ObjectFaults
from tests.support.services.storage_pair import StoragePair
from upload_service.model import Damage, StorageKind
from upload_service.storage.store import MongoMoveStore


@pytest.fixture
def migration(storages: StoragePair, monkeypatch: pytest.MonkeyPatch) -> StorageMigration:
    """The command without pauses."""
    return make_migration(storages, StorageKind.S3, monkeypatch)


def make_migration(storages: StoragePair, target: StorageKind, monkeypatch: pytest.MonkeyPatch) -> StorageMigration:
    @asynccontextmanager
    async def opened(*_: str) -> AsyncIterator[MongoDatabase]:
        yield storages.database

    monkeypatch.setattr(cli_migrate, "open_database", opened)
    monkeypatch.setattr(cli_migrate, "PAUSE", 0)
    return StorageMigration(Storage(storages.root, storages.backends, storages.staging, StorageKind.S3), target)


async def test_an_unreadable_object_is_named_and_the_others_are_moved(
    faulty_storages: StoragePair,
    faults: ObjectFaults,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad, sound = [await faulty_storages.add_installer(storage=StorageKind.S3) for _ in range(2)]
    faults.unreadable.add(bad.server_filename)
    migration = make_migration(faulty_storages, StorageKind.FOLDER, monkeypatch)
    await migration.run(StoreAddresses(Addresses("", "", ""), faulty_storages.root, None))
    with pytest.raises(typer.Exit) as stopped:
        migration.report()
    await faulty_storages.assert_only_in(StorageKind.FOLDER, sound)
    output = capsys.readouterr().out
    assert stopped.value.exit_code == 1
    assert f"{bad.tenant_id}/{bad.server_filename}: unreadable" in output
    assert "1 files were not moved" in output


async def test_a_failed_file_that_another_replica_moved_hides_no_remaining_file(
    storages: StoragePair,
    migration: StorageMigration,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing, waiting = await storages.add_installer(), await storages.add_installer()
    content = storages.folder.path(failing).read_bytes()
    await storages.folder.remove(failing)
    await storages.store.make_due([StorageKind.FOLDER])
    assert await storages.store.queue.lease(upload_id=waiting.upload_id) is not None  # by a mover that dies
    steps = iter(("first", "before a round", "after it", "after another"))

    class ConcurrentMoveStore(MongoMoveStore):
        """The records, with changes of other replicas between the checks."""

        async def remaining(self, home: StorageKind, passed_over: Collection[str] = ()) -> tuple[int, int]:
            step = next(steps, "")
            if step == "after it":
                (storages.root / "copy").write_bytes(content)
                await storages.objects.put(failing, storages.root / "copy")
                moved = {"$set": {"home": StorageKind.S3}, "$unset": {"work.move": ""}}
                await storages.database["uploads"].update_one({"tenant_id": failing.tenant_id}, moved)
            elif step == "after another":
                await storages.expire_leases()
            return await super().remaining(home, passed_over)

    monkeypatch.setattr(cli_migrate, "MongoMoveStore", ConcurrentMoveStore)
    await migration.run(StoreAddresses(Addresses("", "", ""), storages.root, None))
    migration.report()
    await storages.assert_only_in(StorageKind.S3, waiting)
    await storages.assert_only_in(StorageKind.S3, failing)
    assert f"{failing.tenant_id}/{failing.server_filename}: failed" in capsys.readouterr().out


async def scrub(storages: StoragePair, mongo_url: str, monkeypatch: pytest.MonkeyPatch) -> ScrubRun:
    """Run the command for all tenants."""

    @asynccontextmanager
    async def opened(_: str, name: str) -> AsyncIterator[MongoDatabase]:
        if name == "upload":
            yield storages.database
        else:
            async with open_database(mongo_url, f"{storages.database.name}_catalog") as database:
                yield database

    async def accept(*_: object) -> None: ...

    monkeypatch.setattr(maintenance, "open_database", opened)
    monkeypatch.setattr(maintenance, "_require_tenant", accept)
    run = ScrubRun(Storage(storages.root, storages.backends, storages.staging, StorageKind.S3), None)
    await run.run(StoreAddresses(Addresses("", mongo_url, ""), storages.root, None))
    return run


async def test_an_unreadable_object_is_named_and_the_others_are_checked(
    faulty_storages: StoragePair,
    faults: ObjectFaults,
    mongo_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    uploads = [await faulty_storages.add_installer(storage=StorageKind.S3) for _ in range(3)]
    faults.unreadable.add(uploads[0].server_filename)
    run = await scrub(faulty_storages, mongo_url, monkeypatch)
    with pytest.raises(typer.Exit) as stopped:
        run.report(as_json=False, is_complete=True)
    output = capsys.readouterr().out
    assert stopped.value.exit_code == 1
    assert uploads[0].server_filename in output
    assert "3 files were checked, 1 are damaged, 1 of them cannot be read." in output
    damages = [(await faulty_storages.record(upload))["damage"] for upload in uploads]
    assert damages == [Damage.UNREADABLE, Damage.NONE, Damage.NONE]


async def test_a_storage_that_does_not_respond_stops_the_command(
    faulty_storages: StoragePair, faults: ObjectFaults, mongo_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = await faulty_storages.add_installer(storage=StorageKind.S3)
    assert await faulty_storages.ownership.is_ours(StorageKind.S3)
    faults.unreadable.update([upload.server_filename, "id"])
    with pytest.raises(Unavailable):
        await scrub(faulty_storages, mongo_url, monkeypatch)
    assert (await faulty_storages.record(upload))["damage"] == Damage.NONE
