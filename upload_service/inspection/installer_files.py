"""Installers as files that a process of this host can read."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from upload_service.model import InstallerMissing, StorageKind, Upload
from upload_service.storage.filesystem import FolderStorage, StorageBackends
from upload_service.uploads.part_files import full_disk

END = 64 << 20  # bytes


class InstallerFiles:
    """Opens an installer wherever it is. `scratch` is a folder for what must be fetched first."""

    def __init__(self, homes: StorageBackends, folder: FolderStorage, scratch: Path) -> None:
        self._homes = homes
        self._folder = folder
        self._scratch = scratch

    @asynccontextmanager
    async def open(self, upload: Upload) -> AsyncIterator[BinaryIO]:
        """The file within the block.

        Of a long one from elsewhere it is the two ends, 64 MiB each, with zeros between: in them most is said.

        Raises:
            InstallerMissing: it is not where its record says.
            StorageFull: there is no room to fetch it.
            Unavailable: its home does not answer.
        """
        file = await (self._opened(upload) if upload.storage is StorageKind.FOLDER else self._fetched(upload))
        try:
            yield file
        finally:
            file.close()

    async def _opened(self, upload: Upload) -> BinaryIO:
        await self._homes.of(upload).size(upload)  # Whoever completed it may have died before the file had its name.
        try:
            return await asyncio.to_thread(self._folder.path(upload).open, "rb")
        except FileNotFoundError:
            raise InstallerMissing("The file of this installer is missing.") from None

    async def _fetched(self, upload: Upload) -> BinaryIO:
        home = self._homes.of(upload)
        file: BinaryIO = await asyncio.to_thread(TemporaryFile, dir=self._scratch)
        try:
            for start, length in ends_of(upload.size):
                file.seek(start)
                async with aclosing(home.read(upload, start, length)) as blocks:
                    async for block in blocks:
                        await asyncio.to_thread(_write, file, block)
        except BaseException:
            file.close()
            raise
        return file


def ends_of(size: int) -> Sequence[tuple[int, int]]:
    """The parts of a file of so many bytes that are fetched: where each begins, and its length."""
    return [(0, size)] if size <= 2 * END else [(0, END), (size - END, END)]


def _write(file: BinaryIO, block: bytes) -> None:
    with full_disk():
        file.write(block)
        file.flush()
