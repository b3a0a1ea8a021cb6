"""Where complete installers are kept: the port, and the shared folder, which is the first home of each of them."""

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from common.errors import Unavailable
from common.tenants import is_tenant_id
from upload_service.content_range import parse_server_filename, plain_name
from upload_service.model import InstallerMissing, StorageKind, Upload
from upload_service.uploads.part_files import BLOCK, PartFiles, full_disk, sync_folder


@dataclass(frozen=True)
class StoredFile:
    """A file that is kept; `age` is seconds since it came."""

    tenant_id: str
    server_filename: str
    age: float


class InstallerStorage(Protocol):
    """A home of complete installers. A name is written once, and what stands under it never changes."""

    async def put(self, upload: Upload, source: Path) -> None:
        """Bring a whole file here; nothing where it is here already. `source` may be gone afterwards.

        Raises:
            StorageFull: there is no room.
            InstallerMissing: there is neither a source nor a file.
            Unavailable: the storage does not answer.
        """

    async def size(self, upload: Upload) -> int | None:
        """Bytes; None where the file is missing. Raises Unavailable."""

    def read(self, upload: Upload, start: int, length: int) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` on, in blocks of at most 1 MiB. Raises InstallerMissing and Unavailable."""

    async def remove(self, upload: Upload) -> None:
        """Remove the file; that it is gone already is fine. Raises Unavailable."""

    def list_files(self) -> AsyncIterator[StoredFile]:
        """All files of all tenants. Raises Unavailable."""

    async def remove_tenant(self, tenant_id: str) -> None:
        """Remove all of a tenant. Raises ValueError for an id that no tenant can have, and Unavailable."""


class StorageBackends:
    """The homes that the settings name."""

    def __init__(self, homes: Mapping[StorageKind, InstallerStorage]) -> None:
        self._homes = homes

    def __iter__(self) -> Iterator[InstallerStorage]:
        return iter(self._homes.values())

    def __contains__(self, home: StorageKind) -> bool:
        return home in self._homes

    def get(self, home: StorageKind) -> InstallerStorage:
        """Raises Unavailable for one that the settings do not have."""
        if home not in self._homes:
            raise Unavailable(f"The settings of the upload service name no storage `{home}`.")
        return self._homes[home]

    def of(self, upload: Upload) -> InstallerStorage:
        """Where this installer is. Raises Unavailable."""
        return self.get(upload.storage)


class FolderStorage:
    """The folder that all replicas share; satisfies `InstallerStorage`.

    A record says that a transfer is complete before its file has its final name. A file that still lies under its
    transfer's name, because whoever said so died, gets its final name when it is first asked for.
    """

    def __init__(self, folder: Path, parts: PartFiles) -> None:
        self._folder = folder
        self._parts = parts

    def path(self, upload: Upload) -> Path:
        """Where the file is. Raises ValueError for a record whose names lead elsewhere."""
        return self._folder / plain_name(upload.tenant_id) / plain_name(upload.server_filename)

    async def finalize(self, upload: Upload) -> None:
        """Let a complete transfer's file have its final name, and nothing be left of the transfer.

        Raises:
            StorageFull: there is no room, not even for a name.
            InstallerMissing: there is no file; others may have moved it on since, or removed it.
        """
        await self.put(upload, self._parts.path(upload))
        await asyncio.to_thread(self._parts.remove, upload)

    async def put(self, upload: Upload, source: Path) -> None:
        await asyncio.to_thread(self._put, upload, source)

    async def size(self, upload: Upload) -> int | None:
        return await asyncio.to_thread(self._size, upload)

    async def read(self, upload: Upload, start: int, length: int) -> AsyncGenerator[bytes, None]:
        path = await asyncio.to_thread(self._settled, upload)
        async for block in read_blocks(path, start, length):
            yield block

    async def remove(self, upload: Upload) -> None:
        if upload.server_filename:
            await asyncio.to_thread(self.path(upload).unlink, missing_ok=True)

    async def list_files(self) -> AsyncIterator[StoredFile]:
        for kept in await asyncio.to_thread(lambda: list(self._listed())):
            yield kept

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
                    raise InstallerMissing("The file of this installer is missing.") from None
            sync_folder(target.parent)

    def _size(self, upload: Upload) -> int | None:
        try:
            return self._settled(upload).stat().st_size
        except FileNotFoundError:
            return None

    def _settled(self, upload: Upload) -> Path:
        path = self.path(upload)
        part = self._parts.path(upload)
        if not path.exists() and part.exists():
            self._put(upload, part)
        return path

    def _listed(self) -> Iterator[StoredFile]:
        now = time.time()
        for path in self._folder.glob("*/*"):
            name = parse_server_filename(path.name)
            if name is not None and is_tenant_id(path.parent.name):
                with suppress(FileNotFoundError):  # It may go at any moment.
                    yield StoredFile(path.parent.name, name, now - path.stat().st_mtime)


async def read_blocks(path: Path, start: int, length: int) -> AsyncGenerator[bytes, None]:
    """Bytes of a file. Raises InstallerMissing."""
    opening = asyncio.create_task(asyncio.to_thread(path.open, "rb"))
    try:
        file = await asyncio.shield(opening)
    except FileNotFoundError:
        raise InstallerMissing("The file of this installer is missing.") from None
    except asyncio.CancelledError:
        opening.add_done_callback(_close)  # The thread opens it all the same.
        raise
    try:
        await asyncio.to_thread(file.seek, start)
        while length and (block := await asyncio.to_thread(file.read, min(length, BLOCK))):
            length -= len(block)
            yield block
    finally:
        file.close()  # It was read only: there is nothing to wait for.


async def prepend(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The blocks of `rest` after a first one that was read before."""
    yield first
    async for block in rest:
        yield block


def _close(opening: "asyncio.Task[BufferedReader]") -> None:
    if not opening.cancelled() and not opening.exception():
        opening.result().close()
