"""No file in a foreign storage is moved or removed, and no record is deleted before its file."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from common.errors import Unavailable
from common.mongo import MongoDatabase, open_database
from tests.support.servers.object_storage import ObjectServer
from tests.support.services.storage_pair import StoragePair
from tests.support.services.upload import UploadApi, make_removal, serving_uploads, settings_for
from tests.support.wait import until
from upload_service.model import Status, StorageKind
from upload_service.quota.store import MongoQuotaStore
from upload_service.storage.filesystem import StorageBackends
from upload_service.storage.integrity import StorageOwnership
from upload_service.storage.store import MongoFileIndex
from upload_service.uploads.store import MongoUploadStore

BOTH = pytest.mark.parametrize("anothers", list(StorageKind))


@pytest.fixture
async def other_database(mongo_url: str) -> AsyncIterator[MongoDatabase]:
    """The database of another installation."""
    async with open_database(mongo_url, f"test_other_{uuid4().hex[:8]}") as database:
        yield database


async def write_storage_id(home: StorageKind, homes: StorageBackends, folder: Path, database: MongoDatabase) -> None:
    assert await StorageOwnership(MongoFileIndex(database), homes, folder).is_ours(home)


@BOTH
@pytest.mark.parametrize("chosen", list(StorageKind))
async def test_nothing_is_moved_if_a_storage_is_foreign(
    storages: StoragePair, other_database: MongoDatabase, anothers: StorageKind, chosen: StorageKind
) -> None:
    await write_storage_id(anothers, storages.backends, storages.root, other_database)
    (old,) = set(StorageKind) - {chosen}
    upload = await storages.add_installer(storage=old)
    for _ in range(2):
        with pytest.raises(Unavailable, match=f"`{anothers}` does not belong to this database"):
            await storages.move_all(chosen)
    await storages.assert_only_in(old, upload)


@BOTH
async def test_no_copy_is_removed_if_a_storage_is_foreign(
    storages: StoragePair, other_database: MongoDatabase, anothers: StorageKind
) -> None:
    await write_storage_id(anothers, storages.backends, storages.root, other_database)
    upload = await storages.add_installer(left=StorageKind.S3)
    (storages.root / "copy").write_bytes(b"copy")
    await storages.objects.put(upload, storages.root / "copy")
    with pytest.raises(Unavailable, match=f"`{anothers}` does not belong to this database"):
        await storages.mover(StorageKind.S3).run()
    assert await storages.objects.size(upload) == len(b"copy")


async def until_reported(api: UploadApi, text: str) -> None:
    """Wait until the readiness response of a service contains this text."""

    async def is_reported() -> bool:
        async with api.service.session.get(f"{api.service.address}/readyz") as answer:
            return f'"{text}"' in await answer.text()

    await until(is_reported)


async def test_a_service_with_a_foreign_bucket_is_not_ready(
    mongo_url: str, tmp_path: Path, object_server: ObjectServer
) -> None:
    bucket = object_server.settings(uuid4().hex)
    for folder, text in ((tmp_path / "ours", "ready"), (tmp_path / "theirs", "StorageIsNotOurs")):
        settings = settings_for(mongo_url, folder, installer_storage=StorageKind.S3, **bucket)
        async with serving_uploads(settings) as api:
            await until_reported(api, text)


async def test_a_service_without_its_object_storage_is_ready(
    mongo_url: str, database: MongoDatabase, tmp_path: Path, object_server: ObjectServer
) -> None:
    bucket = {**object_server.settings(uuid4().hex), "s3_endpoint": "http://127.0.0.1:9"}
    settings = settings_for(mongo_url, tmp_path, database=database.name, installer_storage=StorageKind.S3, **bucket)
    async with serving_uploads(settings) as api:
        await until_reported(api, "ready")


async def test_an_upload_in_an_unknown_storage_keeps_its_record(storages: StoragePair) -> None:
    upload = await storages.add_installer(storage=StorageKind.S3)
    store, quota = MongoUploadStore(storages.database), MongoQuotaStore(storages.database)
    with pytest.raises(Unavailable, match="name no storage `s3`"):
        await make_removal(store, quota, storages.root).remove(upload)
    assert (await storages.record(upload))["status"] == Status.DELETING
    assert await storages.objects.size(upload) == upload.size
    stored = await storages.store.find(upload)
    assert stored is not None
    await storages.removal.remove(stored)
    assert await storages.store.find(upload) is None
    assert await storages.objects.size(upload) is None
