"""Files without a record are removed, except young files and files of another installation."""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import AsyncMock, Mock
from uuid import uuid4

import pytest

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase, open_database
from tests.support.services.stored import Stored
from tests.support.services.upload import make_uploader, serving_uploads
from tests.support.tables import each
from upload_service.maintenance.orphans import OrphanCollector
from upload_service.model import StorageKind, Upload
from upload_service.settings import UploadSettings
from upload_service.storage.filesystem import FolderStorage, StorageBackends
from upload_service.storage.integrity import StorageIsNotOurs, StorageOwnership
from upload_service.storage.part_files import PartFiles
from upload_service.storage.store import MongoFileIndex

FILE = b"installer " * 100
DAY = 24 * 3600


class Setup(Stored):
    """A service, its database, and an orphan collector that a test starts."""

    @property
    def identity(self) -> StorageOwnership:
        return StorageOwnership(
            MongoFileIndex(self.database), StorageBackends({StorageKind.FOLDER: self._installers}), self.api.folder
        )

    async def collect(self) -> None:
        """Make all files two days old, and collect orphans."""
        two_days_ago = time.time() - 2 * DAY
        for path in self.api.folder.rglob("*"):
            os.utime(path, (two_days_ago, two_days_ago))
        await self.collect_old()

    async def collect_old(self) -> None:
        store, homes = MongoFileIndex(self.database), StorageBackends({StorageKind.FOLDER: self._installers})
        await OrphanCollector(store, homes, self._installers, self.api.folder, self.identity, age=DAY).collect()

    async def complete(self, caller: Caller) -> Upload:
        """An announced upload."""
        await self.api.chunk(caller, "f", FILE, 0, len(FILE))
        await self.until_announced()
        return await self.record(caller)

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
async def setup(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Setup]:
    # The background work of the service would disturb the test.
    monkeypatch.setattr("upload_service.app.OrphanCollector", lambda *_: Mock(collect=AsyncMock()))
    async with serving_uploads(settings.model_copy(update={"scrub_interval": 0})) as api:
        setup = Setup(api, database)
        assert await setup.identity.is_ours(StorageKind.FOLDER)
        yield setup


@pytest.mark.parametrize("batch", [3, 1000])
async def test_files_without_a_record_of_their_tenant_are_removed_and_the_others_stay(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr("upload_service.maintenance.orphans.BATCH", batch)
    caller, other = make_uploader(), make_uploader()
    names = [await setup.api.upload(caller, FILE) for _ in range(4)]
    await setup.api.claim(caller, names[0])
    orphans = [setup.orphan(owner) for owner in (caller, other) for _ in range(4)]
    orphans += [setup.orphan(other, names[0]), setup.remains(make_uploader(), "0" * 32, "0")]
    await setup.collect()
    assert [path for path in orphans if path.exists()] == []
    assert setup.api.files(caller) == sorted(names)


async def test_young_files_and_foreign_names_are_kept(setup: Setup) -> None:
    caller = make_uploader()
    young = setup.orphan(caller), setup.remains(caller, "0" * 32, "0")
    await setup.collect_old()
    assert all(path.exists() for path in young)
    foreign = setup.orphan(caller, "README.txt"), setup.api.folder / "lost+found"
    foreign[1].mkdir()
    await setup.collect()
    assert all(path.exists() for path in foreign)


async def test_an_open_transfer_keeps_its_current_generation_only(setup: Setup) -> None:
    caller = make_uploader()
    await setup.api.chunk(caller, "f", FILE[:10], 0, len(FILE))
    upload = await setup.record(caller)
    stale = setup.remains(caller, upload.upload_id, "7")
    await setup.collect()
    assert not stale.exists()
    assert setup.api.part(caller, "f").read_bytes() == FILE[:10]
    answer = await setup.api.chunk(caller, "f", FILE[10:], 10, len(FILE))
    assert (answer.status, answer.body["complete"]) == (200, True)


async def test_the_collector_keeps_the_copy_of_a_running_takeover(setup: Setup) -> None:
    caller = make_uploader()
    await setup.api.chunk(caller, "f", FILE[:10], 0, len(FILE))
    upload = await setup.record(caller)
    copy = setup.remains(caller, upload.upload_id, str(upload.fence + 1))
    await setup.change(caller, fence=upload.fence + 1)
    await setup.collect()
    assert copy.exists()


@each("part", ["0", "5", "a-copy-on-its-way"])
async def test_a_complete_transfer_leaves_no_part_files(setup: Setup, part: str) -> None:
    caller = make_uploader()
    upload = await setup.complete(caller)
    remains = setup.remains(caller, upload.upload_id, part)
    await setup.collect()
    assert not remains.exists()
    assert setup.api.files(caller) == [upload.server_filename]


async def test_the_collector_renames_a_complete_file_after_a_crash(setup: Setup) -> None:
    caller = make_uploader()
    upload = await setup.complete(caller)
    (setup.tenant(caller) / upload.server_filename).unlink()
    remains = setup.remains(caller, upload.upload_id, "0")
    await setup.collect()
    assert not remains.exists()
    assert (setup.tenant(caller) / upload.server_filename).read_bytes() == FILE


async def test_a_folder_of_another_database_loses_nothing(setup: Setup, mongo_url: str) -> None:
    caller = make_uploader()
    name = await setup.api.upload(caller, FILE)
    remains = setup.remains(caller, "0" * 32, "0")
    async with open_database(mongo_url, f"test_foreign_{uuid4().hex[:8]}") as empty:
        other_setup = Setup(setup.api, empty)
        await other_setup.collect()
        with pytest.raises(StorageIsNotOurs):
            await other_setup.identity.check(StorageKind.FOLDER)
        await MongoFileIndex(empty).create_storage_id()
        await other_setup.collect()
        await empty.client.drop_database(empty.name)
    assert setup.api.files(caller) == sorted([name, "upload_f.part"])
    assert remains.exists()
    await setup.identity.check(StorageKind.FOLDER)


@pytest.mark.parametrize("has_record", [True, False])
async def test_a_folder_without_id_is_ours_only_if_a_record_names_a_file(setup: Setup, has_record: bool) -> None:
    caller = make_uploader()
    names = [await setup.api.upload(caller, FILE)] if has_record else []
    orphan, mark = setup.orphan(caller), setup.api.folder / ".storage" / "id"
    mark.unlink()
    await setup.collect()
    assert setup.api.files(caller) == (names if has_record else [orphan.name])
    assert mark.exists() is has_record


async def test_an_empty_folder_is_not_ours_if_records_name_files(setup: Setup) -> None:
    await setup.api.upload(make_uploader(), FILE)
    moved_folder = setup.api.folder.with_name("away")
    setup.api.folder.rename(moved_folder)
    setup.api.folder.mkdir()
    assert not await setup.identity.is_ours(StorageKind.FOLDER)
    setup.api.folder.rmdir()
    moved_folder.rename(setup.api.folder)
    assert await setup.identity.is_ours(StorageKind.FOLDER)
