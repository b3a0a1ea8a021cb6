"""The homes of installers, as an operator's command opens them: the folder, and what the environment says of S3."""

from dataclasses import dataclass
from pathlib import Path

from common.mongo import MongoDatabase
from common.settings import BadSetting, load
from upload_service.model import StorageKind, Upload
from upload_service.settings import StorageSettings
from upload_service.storage.filesystem import FolderStorage, StorageBackends
from upload_service.storage.migration_store import MongoMoveStore
from upload_service.storage.s3 import S3Storage, storage_backends
from upload_service.storage.staging import Staging
from upload_service.uploads.part_files import PartFiles


@dataclass(frozen=True)
class Storage:
    """`folder` is the one that all replicas share, `chosen` where the settings want installers to end up."""

    folder: Path
    homes: StorageBackends
    staging: Staging
    chosen: StorageKind

    def path(self, upload: Upload) -> Path:
        """Where the folder has an installer. Raises ValueError for a record whose names lead elsewhere."""
        return FolderStorage(self.folder, PartFiles(self.folder)).path(upload)

    def check(self, home: StorageKind) -> None:
        """Raise BadSetting where the settings do not have this home."""
        if home not in self.homes:
            raise BadSetting("S3_URL: must be given, as it is to the upload service")

    async def check_tenant(self, upload: MongoDatabase, tenant_id: str) -> None:
        """Raise BadSetting where a tenant has installers at a home that the settings do not have."""
        if await MongoMoveStore(upload).has_any(tenant_id, StorageKind.S3):
            self.check(StorageKind.S3)


def open_storage(installers: Path | None) -> Storage:
    """The homes, that of `installers` among them. Raises BadSetting where the folder is not known."""
    if installers is None:
        raise BadSetting("INSTALLERS: set it to the folder of installers")
    settings, parts = load(StorageSettings), PartFiles(installers)
    folder = FolderStorage(installers, parts)
    objects = S3Storage(settings.object_storage) if settings.object_storage else None
    return Storage(installers, storage_backends(folder, objects), Staging(folder, parts), settings.installer_storage)
