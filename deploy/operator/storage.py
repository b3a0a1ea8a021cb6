"""The storage of installers for operators' commands: the folder, and S3 if the environment configures it."""

from dataclasses import dataclass
from pathlib import Path

from common.settings import BadSetting, load
from upload_service.model import StorageKind, Upload
from upload_service.settings import StorageSettings
from upload_service.storage.filesystem import FolderStorage, StorageBackends
from upload_service.storage.integrity import AfterBlock, IntegrityCheck, StorageOwnership
from upload_service.storage.migration import Staging
from upload_service.storage.part_files import PartFiles
from upload_service.storage.s3 import S3Storage, storage_backends
from upload_service.storage.store import MongoFileIndex


@dataclass(frozen=True)
class Storage:
    """`folder` is shared by all replicas, `chosen` is the kind of storage for new installers."""

    folder: Path
    backends: StorageBackends
    staging: Staging
    chosen: StorageKind

    def path(self, upload: Upload) -> Path:
        """The path of an installer in the folder. Raises ValueError for a record whose names lead elsewhere."""
        return FolderStorage(self.folder, PartFiles(self.folder)).path(upload)

    def integrity_check(self, index: MongoFileIndex, after_block: AfterBlock) -> IntegrityCheck:
        """A check of stored files, which calls `after_block` with the length of each block that it reads."""
        return IntegrityCheck(self.backends, StorageOwnership(index, self.backends, self.folder), after_block)

    def require(self, kind: StorageKind) -> None:
        """Raise BadSetting if the settings lack this storage."""
        if kind not in self.backends.kinds:
            raise BadSetting("S3_URL: is missing; set it as for the upload service")


def open_storage(installers: Path | None) -> Storage:
    """Open the storage; `installers` is the folder. Raises BadSetting without a folder."""
    if installers is None:
        raise BadSetting("INSTALLERS: set it to the folder of installers")
    settings, parts = load(StorageSettings), PartFiles(installers)
    folder = FolderStorage(installers, parts)
    objects = S3Storage(settings.object_storage) if settings.object_storage else None
    return Storage(installers, storage_backends(folder, objects), Staging(folder, parts), settings.installer_storage)
