"""Files on their way from one storage to another, as files of the shared folder."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from upload_service.model import StorageFull, StorageKind, Upload
from upload_service.storage.filesystem import FolderStorage, InstallerStorage
from upload_service.uploads.part_files import PartFile, PartFiles
from upload_service.uploads.part_writer import PartWriter


@dataclass(frozen=True)
class Staging:
    """Provides an installer as a local file."""

    folder: FolderStorage
    parts: PartFiles

    @asynccontextmanager
    async def open(self, upload: Upload, storage: InstallerStorage, token: str) -> AsyncIterator[Path]:
        """The path of a complete file: its own in the folder, else that of a copy, which this block removes.

        The copy is named after `token` and is beside the transfers' files; removing the upload removes it as well.
        Raises StorageFull, InstallerMissing and Unavailable.
        """
        if upload.storage is StorageKind.FOLDER:
            await storage.size(upload)  # Gives the file its final name, if it has none yet.
            yield self.folder.path(upload)
            return
        if (await asyncio.to_thread(shutil.disk_usage, self.parts.folder)).free < upload.size:
            raise StorageFull  # Before gigabytes were fetched in vain.
        part = self.parts.path(upload)
        copy = part.parent.with_name(f"{upload.upload_id}.{token}") / part.name
        try:
            async with aclosing(storage.read(upload, 0, upload.size)) as blocks:
                await PartWriter(lambda: PartFile(copy, 0, None)).write(blocks)
            yield copy
        finally:
            await asyncio.to_thread(_remove, copy)


def _remove(copy: Path) -> None:
    with suppress(FileNotFoundError):
        copy.unlink(missing_ok=True)
        copy.parent.rmdir()
