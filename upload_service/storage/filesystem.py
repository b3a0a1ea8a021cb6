"""The storages of complete installers: their interface, and the shared folder, where every installer starts."""

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Protocol, TypeVar

from common.errors import Unavailable
from common.tenants import is_tenant_id
from upload_service.model import InstallerMissing, StorageKind, Upload, parse_server_filename, plain_name
from upload_service.storage.part_files import BLOCK, PartFiles, full_disk, sync_folder

Block = TypeVar("Block")


@dataclass(frozen=True)
class StoredFile:
    """A file in a storage; `age` is seconds since it was stored."""

    tenant_id: str
    server_filename: str
    age: float


class InstallerStorage(Protocol):
    """A storage of complete installers. A name is written once, and its bytes never change.

    Every method raises Unavailable if the storage does not respond.
    """

    async def put(self, upload: Upload, source: Path) -> None:
        """Store a whole file, unless it is stored already; may move `source`. Raises StorageFull, InstallerMissing."""

    async def size(self, upload: Upload) -> int | None:
        """Bytes; None if the file is missing."""

    def read(self, upload: Upload, start: int, length: int) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` on, in blocks of at most 1 MiB. Raises InstallerMissing."""

    async def remove(self, upload: Upload) -> None:
        """Remove the file; a missing file is no error."""

    def list_files(self) -> AsyncIterator[StoredFile]:
        """All files of all tenants, one tenant after another."""

    async def remove_tenant(self, tenant_id: str) -> None:
        """Remove all files of a tenant. Raises ValueError for an id that no tenant can have."""


@dataclass(frozen=True)
class StorageBackends:
    """The storages in the settings."""

    backends: Mapping[StorageKind, InstallerStorage]

    def __iter__(self) -> Iterator[InstallerStorage]:
        return iter(self.backends.values())

    @property
    def kinds(self) -> list[StorageKind]:
        return list(self.backends)

    def get(self, kind: StorageKind) -> InstallerStorage:
        """The storage of this kind. Raises Unavailable if it is not in the settings."""
        if kind not in self.backends:
            raise Unavailable(f"The settings of the upload service name no storage `{kind}`.")
        return self.backends[kind]

    def of(self, upload: Upload) -> InstallerStorage:
        """The storage that has this installer. Raises Unavailable."""
        return self.get(upload.storage)


class FolderStorage:
    """The folder that all replicas share; implements `InstallerStorage`.

    A record is complete before its file has its final name. A file that still has its transfer's name, because the
    process died in between, gets its final name when it is first needed.
    """

    def __init__(self, folder: Path, parts: PartFiles) -> None:
        self._folder = folder
        self._parts = parts

    def path(self, upload: Upload) -> Path:
        """The path of the file. Raises ValueError for a record with a name that leads to another folder."""
        return self._folder / plain_name(upload.tenant_id) / plain_name(upload.server_filename)

    async def finalize(self, upload: Upload) -> None:
        """Give the file of a complete transfer its final name, and remove what is left of the transfer.

        Raises StorageFull, and InstallerMissing if another process has moved or removed it.
        """
        await self.put(upload, self._parts.path(upload))
        await asyncio.to_thread(self._parts.remove, upload)

    async def put(self, upload: Upload, source: Path) -> None:
        await asyncio.to_thread(self._put, upload, source)

    async def size(self, upload: Upload) -> int | None:
        with suppress(FileNotFoundError):
            return (await asyncio.to_thread(lambda: self._final_path(upload).stat())).st_size
        return None

    async def read(self, upload: Upload, start: int, length: int) -> AsyncGenerator[bytes, None]:
        path = await asyncio.to_thread(self._final_path, upload)
        async for block in read_blocks(path, start, length):
            yield block

    async def remove(self, upload: Upload) -> None:
        if upload.server_filename:
            await asyncio.to_thread(self.path(upload).unlink, missing_ok=True)

    async def list_files(self) -> AsyncIterator[StoredFile]:
        for file in await asyncio.to_thread(lambda: list(self._list_files())):
            yield file

    async def remove_tenant(self, tenant_id: str) -> None:
        if not is_tenant_id(tenant_id):  # It would be another folder.
            raise ValueError("not a tenant's id")
        folder = self._folder / tenant_id
        if await asyncio.to_thread(folder.exists):
            await asyncio.to_thread(shutil.rmtree, folder)

    def _put(self, upload: Upload, source: Path) -> None:
        target = self.path(upload)
        if target.exists():
            return
        with full_disk():
            try:
                source.rename(target)
            except FileNotFoundError:
                if not target.exists():  # Another process may have been faster.
                    raise InstallerMissing from None
            sync_folder(target.parent)

    def _final_path(self, upload: Upload) -> Path:
        path, part = self.path(upload), self._parts.path(upload)
        if not path.exists() and part.exists():
            self._put(upload, part)
        return path

    def _list_files(self) -> Iterator[StoredFile]:
        now = time.time()
        for path in self._folder.glob("*/*"):
            name = parse_server_filename(path.name)
            if name is not None and is_tenant_id(path.parent.name):
                with suppress(FileNotFoundError):  # It may be removed at any moment.
                    yield StoredFile(path.parent.name, name, now - path.stat().st_mtime)


async def open_file(path: Path) -> BufferedReader:
    """Open a file to read it. Raises InstallerMissing."""
    opening = asyncio.create_task(asyncio.to_thread(path.open, "rb"))
    try:
        return await asyncio.shield(opening)
    except FileNotFoundError:
        raise InstallerMissing from None
    except asyncio.CancelledError:
        opening.add_done_callback(_close)  # The thread opens it all the same.
        raise


async def read_blocks(path: Path, start: int, length: int) -> AsyncGenerator[bytes, None]:
    """Bytes of a file. Raises InstallerMissing."""
    file = await open_file(path)
    try:
        await asyncio.to_thread(file.seek, start)
        while length and (block := await asyncio.to_thread(file.read, min(length, BLOCK))):
            length -= len(block)
            yield block
    finally:
        file.close()  # It was only read, so this does not block.


async def prepend(first: Block, rest: AsyncIterator[Block]) -> AsyncIterator[Block]:
    """The blocks of `rest` after a first one that was read before."""
    yield first
    async for block in rest:
        yield block


def _close(opening: "asyncio.Task[BufferedReader]") -> None:
    if not opening.cancelled() and not opening.exception():
        opening.result().close()
