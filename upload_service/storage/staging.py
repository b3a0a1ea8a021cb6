"""Files on their way to another home, as files of the shared folder."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

from upload_service.model import StorageFull, StorageKind, Upload
from upload_service.storage.filesystem import FolderStorage, InstallerStorage
from upload_service.uploads.part_files import PartFile, PartFiles


class Staging:
    """Lends a file to be put somewhere else."""

    def __init__(self, folder: FolderStorage, parts: PartFiles) -> None:
        self._folder = folder
        self._parts = parts

    @asynccontextmanager
    async def of(self, upload: Upload, home: InstallerStorage, token: str) -> AsyncIterator[Path]:
        """A complete file within the block: as it stands in the folder, or a copy on the disk under this token.

        The copy lies beside the transfers' files, and goes with them where the upload is removed.

        Raises:
            StorageFull: there is no room for a copy.
            InstallerMissing: the file is not there.
            Unavailable: its home does not answer.
        """
        if upload.storage is StorageKind.FOLDER:
            await home.size(upload)  # Whoever completed it may have died before the file had its name.
            yield self._folder.path(upload)
            return
        part = self._parts.path(upload)
        copy = part.parent.with_name(f"{upload.upload_id}.{token}") / part.name
        try:
            file = await asyncio.to_thread(PartFile, copy, 0, None)
            try:
                if (await asyncio.to_thread(shutil.disk_usage, copy.parent)).free < upload.size:
                    raise StorageFull  # Said before gigabytes have come in vain.
                async with aclosing(home.read(upload, 0, upload.size)) as blocks:
                    async for block in blocks:
                        await asyncio.to_thread(file.write, [block])
                await asyncio.to_thread(file.sync)
            finally:
                await asyncio.to_thread(file.close)
            yield copy
        finally:
            await asyncio.to_thread(_remove, copy)


def _remove(copy: Path) -> None:
    with suppress(FileNotFoundError):
        copy.unlink(missing_ok=True)
        copy.parent.rmdir()
