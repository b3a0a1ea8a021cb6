"""Installers as local files, which a process of this host can read."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from upload_service.model import StorageKind, Upload
from upload_service.storage.filesystem import FolderStorage, StorageBackends, open_file
from upload_service.storage.part_files import full_disk

END = 256 << 20  # bytes; a signature is verified in a file that is fetched as a whole


@dataclass(frozen=True)
class InstallerFiles:
    """Opens an installer in any storage. `scratch` is a folder for files that must be fetched."""

    backends: StorageBackends
    folder: FolderStorage
    scratch: Path

    @asynccontextmanager
    async def open(self, upload: Upload) -> AsyncIterator[BinaryIO]:
        """The open file. A long one from object storage has its two ends, 256 MiB each, and zeros in between.

        Raises InstallerMissing, StorageFull if it cannot be fetched, and Unavailable.
        """
        if upload.storage is StorageKind.FOLDER:
            await self.backends.of(upload).size(upload)  # Gives the file its final name, if it has none yet.
            file: BinaryIO = await open_file(self.folder.path(upload))
        else:
            file = await self._fetch(upload)
        with file:
            yield file

    async def _fetch(self, upload: Upload) -> BinaryIO:
        storage = self.backends.of(upload)
        file: BinaryIO = await asyncio.to_thread(TemporaryFile, dir=self.scratch)
        try:
            for start, length in ends_of(upload.size):
                file.seek(start)
                async with aclosing(storage.read(upload, start, length)) as blocks:
                    async for block in blocks:
                        await asyncio.to_thread(_write, file, block)
        except BaseException:
            file.close()
            raise
        return file


def ends_of(size: int) -> Sequence[tuple[int, int]]:
    """The parts of a file of so many bytes that are fetched: start and length."""
    return [(0, size)] if size <= 2 * END else [(0, END), (size - END, END)]


def _write(file: BinaryIO, block: bytes) -> None:
    with full_disk():
        file.write(block)
        file.flush()
