"""Files that no record knows go, and nothing else does: not what is young, and nothing of another installation."""

import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import AsyncMock, Mock
from uuid import uuid4

import pytest

from common.auth.callers import Caller
from common.mongo import MongoDatabase, open_database
from tests.support.services.upload import UploadApi, make_uploader, serving_uploads
from tests.support.waiting import until
from upload_service.maintenance.orphans import OrphanCollector
from upload_service.maintenance.store import MongoFileIndex
from upload_service.model import StorageKind, Upload
from upload_service.settings import UploadSettings
from upload_service.storage.filesystem import FolderStorage, StorageBackends
from upload_service.storage.ownership import StorageIsNotOurs, StorageOwnership
from upload_service.uploads.part_files import PartFiles
from upload_service.uploads.store import MongoUploadStore

FILE = b"installer " * 100
DAY = 24 * 3600


@dataclass(frozen=True)
class House:
    """A service, its database, and a collector of orphans that works when it is told to."""

    api: UploadApi
    database: MongoDatabase

    @property
    def identity(self) -> StorageOwnership:
        return StorageOwnership(
            MongoFileIndex(self.database), StorageBackends({StorageKind.FOLDER: self._installers}), self.api.folder
        )

    async def collect(self) -> None:
        """Look through a folder in which all is two days old."""
        two_days_ago = time.time() - 2 * DAY
        for path in self.api.folder.rglob("*"):
            os.utime(path, (two_days_ago, two_days_ago))
        await self.collect_old()

    async def collect_old(self) -> None:
        store, homes = MongoFileIndex(self.database), StorageBackends({StorageKind.FOLDER: self._installers})
        await OrphanCollector(store, homes, self._installers, self.api.folder, self.identity, age=DAY).collect()

    async def complete(self, caller: Caller) -> Upload:
        """An upload that is announced, so that the service's relay is done with its files."""
        await self.api.chunk(caller, "f", FILE, 0, len(FILE))

        async def announced() -> bool:
            wanted = {"tenant_id": caller.tenant_id, "announced": True}
            return await self.database["uploads"].count_documents(wanted) == 1

        await until(announced)
        return await self.record(caller, "f")

    async def record(self, caller: Caller, file_id: str) -> Upload:
        found = await MongoUploadStore(self.database).find(caller.tenant_id, file_id)
        assert found is not None
        return found

    async def change(self, upload: Upload, **fields: object) -> None:
        await self.database["uploads"].update_one({"upload_id": upload.upload_id}, {"$set": fields})

    def tenant(self, caller: Caller) -> Path:
        return self.api.folder / caller.tenant_id

    def orphan(self, caller: Caller, name: str = "") -> Path:
        """A file that looks like an installer and has no record."""
        path = self.tenant(caller) / (name or f"{uuid4().hex}.msi")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(FILE)
        return path

    def remains(self, caller: Caller, upload_id: str, part: str, file_id: str = "f") -> Path:
        """The folder of a transfer, with its file."""
        path = self.tenant(caller) / "transfers" / f"{upload_id}.{part}"
        path.mkdir(parents=True)
        (path / f"upload_{file_id}.part").write_bytes(FILE)
        return path

    @property
    def _installers(self) -> FolderStorage:
        return FolderStorage(self.api.folder, PartFiles(self.api.folder))


@pytest.fixture
async def house(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[House]:
    # The background work of the service would disturb the test.
    monkeypatch.setattr("upload_service.app.OrphanCollector", lambda *_: Mock(collect=AsyncMock()))
    async with serving_uploads(settings.model_copy(update={"scrub_interval": 0})) as api:
        house = House(api, database)
        assert await house.identity.is_ours(StorageKind.FOLDER)
        yield house


async def test_a_file_without_a_record_is_removed_and_the_others_stay(house: House) -> None:
    caller, other = make_uploader(), make_uploader()
    names = [await house.api.upload(caller, FILE) for _ in range(2)]
    await house.api.claim(caller, names[0])
    orphans = house.orphan(caller), house.orphan(other)
    await house.collect()
    assert [path.exists() for path in orphans] == [False, False]
    assert house.api.files(caller) == sorted(names)


async def test_a_file_of_another_tenants_record_is_not_known(house: House) -> None:
    caller, other = make_uploader(), make_uploader()
    name = await house.api.upload(caller, FILE)
    orphan = house.orphan(other, name)
    await house.collect()
    assert not orphan.exists()
    assert house.api.files(caller) == [name]


async def test_many_files_are_asked_for_in_batches(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upload_service.maintenance.orphans.BATCH", 3)
    callers = [make_uploader() for _ in range(3)]
    names = {caller.tenant_id: [await house.api.upload(caller, FILE) for _ in range(4)] for caller in callers}
    orphans = [house.orphan(caller) for caller in callers for _ in range(4)]
    await house.collect()
    assert not any(path.exists() for path in orphans)
    assert [house.api.files(caller) for caller in callers] == [sorted(names[caller.tenant_id]) for caller in callers]


async def test_what_is_young_stays(house: House) -> None:
    caller = make_uploader()
    orphan, remains = house.orphan(caller), house.remains(caller, "0" * 32, "0")
    await house.collect_old()
    assert orphan.exists()
    assert remains.exists()


async def test_a_file_that_nobody_of_us_has_named_stays(house: House) -> None:
    caller = make_uploader()
    kept = [house.orphan(caller, "README.txt"), house.api.folder / "lost+found"]
    kept[1].mkdir()
    await house.collect()
    assert all(path.exists() for path in kept)


async def test_an_open_transfer_keeps_its_file_and_loses_an_earlier_holders_file(house: House) -> None:
    caller = make_uploader()
    await house.api.chunk(caller, "f", FILE[:10], 0, len(FILE))
    upload = await house.record(caller, "f")
    stale = house.remains(caller, upload.upload_id, "7")
    await house.collect()
    assert not stale.exists()
    assert house.api.part(caller, "f").read_bytes() == FILE[:10]
    answer = await house.api.chunk(caller, "f", FILE[10:], 10, len(FILE))
    assert (answer.status, answer.body["complete"]) == (200, True)


async def test_a_copy_that_a_take_over_is_making_stays(house: House) -> None:
    caller = make_uploader()
    await house.api.chunk(caller, "f", FILE[:10], 0, len(FILE))
    upload = await house.record(caller, "f")
    copy = house.remains(caller, upload.upload_id, str(upload.fence + 1))
    await house.change(upload, fence=upload.fence + 1)
    await house.collect()
    assert copy.exists()


async def test_what_lies_among_transfers_without_a_record_is_removed(house: House) -> None:
    remains = house.remains(make_uploader(), "0" * 32, "0")
    await house.collect()
    assert not remains.exists()


@pytest.mark.parametrize("part", ["0", "5", "a-copy-on-its-way"])
async def test_nothing_stays_of_a_transfer_that_is_complete(house: House, part: str) -> None:
    caller = make_uploader()
    upload = await house.complete(caller)
    remains = house.remains(caller, upload.upload_id, part)
    await house.collect()
    assert not remains.exists()
    assert house.api.files(caller) == [upload.server_filename]


async def test_a_complete_file_that_has_not_its_name_yet_gets_it(house: House) -> None:
    caller = make_uploader()
    upload = await house.complete(caller)
    (house.tenant(caller) / upload.server_filename).unlink()
    remains = house.remains(caller, upload.upload_id, "0")
    await house.collect()
    assert not remains.exists()
    assert (house.tenant(caller) / upload.server_filename).read_bytes() == FILE


async def test_a_folder_of_another_database_loses_nothing(house: House, mongo_url: str) -> None:
    caller = make_uploader()
    name = await house.api.upload(caller, FILE)
    remains = house.remains(caller, "0" * 32, "0")
    async with open_database(mongo_url, f"test_foreign_{uuid4().hex[:8]}") as empty:
        stranger = House(house.api, empty)
        await stranger.collect()
        with pytest.raises(StorageIsNotOurs):
            await stranger.identity.check(StorageKind.FOLDER)
        await MongoFileIndex(empty).create_storage_id()
        await stranger.collect()
        await empty.client.drop_database(empty.name)
    assert house.api.files(caller) == sorted([name, "upload_f.part"])
    assert remains.exists()
    await house.identity.check(StorageKind.FOLDER)


async def test_a_folder_whose_id_is_lost_is_ours_where_we_know_one_of_its_files(house: House) -> None:
    caller = make_uploader()
    name, orphan = await house.api.upload(caller, FILE), house.orphan(caller)
    (house.api.folder / ".storage" / "id").unlink()
    await house.collect()
    assert house.api.files(caller) == [name]
    assert not orphan.exists()


async def test_a_folder_without_an_id_in_which_we_know_nothing_is_not_ours(house: House) -> None:
    caller = make_uploader()
    orphan = house.orphan(caller)
    (house.api.folder / ".storage" / "id").unlink()
    await house.collect()
    assert orphan.exists()
    assert not (house.api.folder / ".storage" / "id").exists()


async def test_an_empty_folder_is_not_ours_where_there_should_be_files(house: House) -> None:
    await house.api.upload(make_uploader(), FILE)
    away = house.api.folder.with_name("away")
    house.api.folder.rename(away)
    house.api.folder.mkdir()
    assert not await house.identity.is_ours(StorageKind.FOLDER)
    house.api.folder.rmdir()
    away.rename(house.api.folder)
    assert await house.identity.is_ours(StorageKind.FOLDER)
