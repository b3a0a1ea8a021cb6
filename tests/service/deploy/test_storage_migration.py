"""`pkgrepo storage migrate` beside replicas that move files too."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest

from common.mongo import MongoDatabase
from deploy.cli import storage as cli_storage
from deploy.cli.storage import Moving
from deploy.local.folder import Addresses
from deploy.operator.storage import Storage
from deploy.operator.stores import StoreAddresses
from tests.support.services.storage_pair import StoragePair
from upload_service.model import StorageKind
from upload_service.storage.migration_store import MongoMoveStore


@pytest.fixture
def moving(storages: StoragePair, monkeypatch: pytest.MonkeyPatch) -> Moving:
    """The command, which pauses for nothing."""

    @asynccontextmanager
    async def opened(*_: str) -> AsyncIterator[MongoDatabase]:
        yield storages.database

    monkeypatch.setattr(cli_storage, "open_database", opened)
    monkeypatch.setattr(cli_storage, "PAUSE", 0)
    return Moving(Storage(storages.root, storages.homes, storages.staging, StorageKind.S3), StorageKind.S3)


async def test_a_failed_file_that_another_replica_moved_hides_no_remaining_file(
    storages: StoragePair, moving: Moving, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing, left = await storages.keep(), await storages.keep()
    content = storages.folder.path(failing).read_bytes()
    await storages.folder.remove(failing)
    assert await storages.store.lease_next(StorageKind.FOLDER, [failing.upload_id]) is not None  # by one that dies
    looks = iter(("first", "before a round", "after it", "after another"))

    class Beside(MongoMoveStore):
        """The records, with others at work on them from look to look."""

        async def remaining(self, home: StorageKind, passed_over: Collection[str] = ()) -> tuple[int, int]:
            look = next(looks, "")
            if look == "after it":
                (storages.root / "copy").write_bytes(content)
                await storages.objects.put(failing, storages.root / "copy")
                moved = {"$set": {"home": StorageKind.S3, "moving_by": ""}}
                await storages.database["uploads"].update_one({"tenant_id": failing.tenant_id}, moved)
            elif look == "after another":
                await storages.let_leases_pass()
            return await super().remaining(home, passed_over)

    monkeypatch.setattr(cli_storage, "MongoMoveStore", Beside)
    await moving.run(StoreAddresses(Addresses("", "", ""), storages.root, None))
    moving.report()
    await storages.expect_at(StorageKind.S3, left)
    await storages.expect_at(StorageKind.S3, failing)
    assert f"{failing.tenant_id}/{failing.server_filename}: failed" in capsys.readouterr().out
