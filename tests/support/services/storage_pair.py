"""A folder, an object storage and their records, for tests of moves."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from common.mongo import MongoDatabase
from common.work import is_waiting
from tests.support.servers.object_storage import ObjectServer
from upload_service.model import Status, StorageKind, Upload
from upload_service.quota.store import MongoQuotaStore
from upload_service.settings import StorageSettings
from upload_service.storage.filesystem import FolderStorage, InstallerStorage, StorageBackends
from upload_service.storage.integrity import IntegrityCheck, StorageOwnership
from upload_service.storage.migration import Mover, Outcome, Staging
from upload_service.storage.part_files import PartFiles
from upload_service.storage.s3 import S3Storage, storage_backends
from upload_service.storage.store import MongoFileIndex, MongoMoveStore
from upload_service.store import MOVE, UPLOAD_FIELDS
from upload_service.uploads.claims import Removal
from upload_service.uploads.store import MongoUploadStore

FILE = bytes(range(256)) * 300
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class StoragePair:
    """The folder, the object storage, and the records of their files."""

    database: MongoDatabase
    folder: FolderStorage
    objects: S3Storage
    staging: Staging
    root: Path

    @property
    def backends(self) -> StorageBackends:
        return storage_backends(self.folder, self.objects)

    @property
    def store(self) -> MongoMoveStore:
        return MongoMoveStore(self.database)

    @property
    def removal(self) -> Removal:
        quota = MongoQuotaStore(self.database)
        return Removal(MongoUploadStore(self.database), quota, PartFiles(self.root), self.backends)

    @property
    def ownership(self) -> StorageOwnership:
        return StorageOwnership(MongoFileIndex(self.database), self.backends, self.root)

    def backend(self, name: StorageKind) -> InstallerStorage:
        return self.backends.get(name)

    def mover(
        self, chosen: StorageKind, store: MongoMoveStore | None = None, backends: StorageBackends | None = None
    ) -> Mover:
        backends = backends or self.backends
        return Mover(store or self.store, backends, self.staging, chosen, IntegrityCheck(backends, self.ownership))

    async def move_all(self, chosen: StorageKind) -> list[Outcome]:
        """Move all files; returns the outcome of each."""
        return [outcome async for _, outcome in self.mover(chosen).moves()]

    async def add_installer(
        self, content: bytes = FILE, storage: StorageKind = StorageKind.FOLDER, **fields: Any
    ) -> Upload:
        """An installer of a version, complete and stored a long time ago."""
        upload_id, tenant_id = uuid4().hex, f"t{uuid4().hex[:8]}"
        upload = Upload(
            tenant_id,
            "f",
            upload_id,
            len(content),
            offset=len(content),
            status=Status.LINKED,
            storage=storage,
            server_filename=f"{upload_id}.exe",
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            version_uid="v1",
        )
        (self.root / tenant_id).mkdir()
        source = self.root / uuid4().hex
        source.write_bytes(content)
        await self.backend(storage).put(upload, source)
        source.unlink(missing_ok=True)
        work = {"scrub": {"due": LONG_AGO, "since": LONG_AGO}}
        document = {**record_of(upload), "work": work, "lease_until": LONG_AGO, "updated_at": LONG_AGO, **fields}
        await self.database["uploads"].insert_one(document)
        return upload

    async def record(self, upload: Upload) -> dict[str, Any]:
        record = await self.database["uploads"].find_one({"tenant_id": upload.tenant_id, "upload_id": upload.upload_id})
        assert record is not None
        return record

    async def expire_leases(self) -> None:
        past = datetime.now(UTC) - timedelta(seconds=1)
        await self.database["uploads"].update_many(is_waiting(MOVE), {"$set": {"work.move.due": past}})

    async def read_from(self, storage: StorageKind, upload: Upload) -> bytes:
        return b"".join([block async for block in self.backend(storage).read(upload, 0, upload.size)])

    async def assert_only_in(self, storage: StorageKind, upload: Upload, content: bytes = FILE) -> None:
        """Assert that the record names this storage, and that no other one has the file."""
        (other,) = set(StorageKind) - {storage}
        record = await self.record(upload)
        assert (record["home"], record.get("left") or "") == (storage, "")
        assert await self.read_from(storage, upload) == content
        assert await self.backend(other).size(upload) is None
        assert [path for path in self.root.rglob("*.part") if path.is_file()] == []


def record_of(upload: Upload) -> dict[str, Any]:
    """The MongoDB document of an upload."""
    return {UPLOAD_FIELDS.get(name, name): value for name, value in vars(upload).items()}


def make_storage_pair(database: MongoDatabase, root: Path, object_server: ObjectServer) -> StoragePair:
    """A pair of storages with its own prefix in the object storage."""
    storage = StorageSettings(**object_server.settings(uuid4().hex)).object_storage
    assert storage is not None
    parts = PartFiles(root)
    folder = FolderStorage(root, parts)
    return StoragePair(database, folder, S3Storage(storage), Staging(folder, parts), root)
