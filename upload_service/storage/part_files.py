"""The files of transfers, in the folder that all replicas share, and the log of offsets beside each of them.

Everything but `PartWriter` blocks: call it in a worker thread.
"""

import asyncio
import errno
import glob
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self, cast

from common.http.zero_copy.socket_body import SocketBody
from upload_service.model import StorageFull, TransferDamaged, Upload, plain_name

TRANSFERS = "transfers"  # the folder for them in the folder of a tenant
PROGRESS = "progress"  # the name of the log of offsets, beside the file
BLOCK = 1 << 20  # bytes
LOG_END = 8 << 10  # bytes at the end of a log that are read; an entry has 15
_ENTRY = re.compile(rb":([0-9]{13})\n")  # A part of an entry is none. The next one neither completes it nor is hidden.
BATCH = 1 << 20  # bytes that one visit to a worker thread writes
MAX_BLOCKS = 512  # in a batch of tiny blocks
Reserve = Callable[[int], Awaitable[None]]


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def full_disk() -> Iterator[None]:
    """Raise StorageFull for an OSError that says the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StorageFull from error
        raise


class Digest(Protocol):
    """A running SHA-256."""

    def update(self, data: bytes, /) -> None: ...
    def copy(self) -> Self: ...
    def hexdigest(self) -> str: ...


@dataclass(frozen=True)
class PartFiles:
    """Finds, opens and removes them. Each generation of a transfer has a folder that no other transfer ever uses."""

    folder: Path

    def path(self, upload: Upload) -> Path:
        """The file of a transfer. Raises ValueError for a record with a name that leads to another folder."""
        return self._transfers(upload) / plain_name(f"{upload.upload_id}.{upload.generation}") / self._name(upload)

    def open(self, upload: Upload, digest: Digest | None) -> "PartFile":
        """The file of a transfer, truncated to its offset; `digest` is updated with what is written from there.

        Raises StorageFull and TransferDamaged.
        """
        return PartFile(self.path(upload), upload.offset, digest)

    def progress(self, upload: Upload) -> Upload:
        """An open transfer as read from its record, with the offset of its log, which the record follows."""
        offset = _last_offset(self.path(upload).with_name(PROGRESS))
        return replace(upload, offset=max(upload.offset, offset))

    def copy(self, upload: Upload, generation: int) -> Digest:
        """Copy the acknowledged bytes to another generation and return their digest. A failure leaves no copy.

        Raises StorageFull and TransferDamaged.
        """
        digest = hashlib.sha256()
        rest = upload.offset
        if not rest:
            return digest
        if shutil.disk_usage(self.folder).free < rest:
            raise StorageFull
        try:
            source = self.path(upload).open("rb")
        except FileNotFoundError:
            raise TransferDamaged from None
        target = self.path(replace(upload, generation=generation))
        try:
            with source, closing(PartFile(target, 0, digest)) as file:
                while rest:
                    block = source.read(min(rest, BLOCK))
                    if not block:
                        raise TransferDamaged
                    file.write([block])
                    rest -= len(block)
                file.sync()
        except BaseException:
            self._remove(target.parent, upload)
            raise
        return digest

    def remove(self, upload: Upload) -> None:
        """Remove every file of a transfer; missing files are no error."""
        for folder in self._folders(upload):
            self._remove(folder, upload)

    def remove_older(self, upload: Upload) -> None:
        """Remove the generations before the one of `upload`, and none that a later take-over made."""
        for folder in self._folders(upload):
            generation = folder.name.rpartition(".")[2]
            if generation.isdecimal() and int(generation) < upload.generation:
                self._remove(folder, upload)

    def _remove(self, folder: Path, upload: Upload) -> None:
        (folder / self._name(upload)).unlink(missing_ok=True)
        (folder / PROGRESS).unlink(missing_ok=True)
        with suppress(FileNotFoundError):  # Another process may have been faster.
            folder.rmdir()

    def _folders(self, upload: Upload) -> Iterator[Path]:
        return self._transfers(upload).glob(f"{plain_name(glob.escape(upload.upload_id))}.*")

    def _name(self, upload: Upload) -> str:
        return plain_name(f"upload_{upload.original_file_id or upload.file_id}.part")

    def _transfers(self, upload: Upload) -> Path:
        return self.folder / plain_name(upload.tenant_id) / TRANSFERS


class PartFile:
    """A growing file, truncated to `offset` when it is opened. Its bytes are on the disk after `sync`.

    `log` then adds its length to the log of offsets: only those bytes count that the log or the record has.
    """

    def __init__(self, path: Path, offset: int, digest: Digest | None) -> None:
        self._path = path
        self._start = self._position = offset
        self._digest = digest
        with _disk_errors():
            if not offset:
                path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | (0 if offset else os.O_CREAT), 0o640)
        try:
            if os.fstat(self._descriptor).st_size < offset:
                raise TransferDamaged
            os.ftruncate(self._descriptor, offset)
        except BaseException:
            os.close(self._descriptor)
            raise

    def write(self, blocks: Sequence[bytes]) -> None:
        """Write and hash the next bytes. Raises StorageFull."""
        with full_disk():
            for block in blocks:
                rest = memoryview(block)
                while rest:
                    written = os.pwrite(self._descriptor, rest, self._position)
                    self._position += written
                    rest = rest[written:]
        if self._digest is not None:
            for block in blocks:
                self._digest.update(block)

    def sync(self) -> None:
        """Wait until the bytes, and the names of a new file, are on the disk.

        Raises StorageFull, and TransferDamaged if another process took the transfer over.
        """
        with _disk_errors():
            os.fsync(self._descriptor)
            if not self._start:
                folder = self._path.parent
                for path in (folder, *list(folder.parents)[:3]):
                    sync_folder(path)

    def log(self) -> None:
        """Add the length to the log of offsets, on the disk; after `sync`.

        Raises StorageFull, and TransferDamaged if another process took the transfer over.
        """
        self._start = self._position  # No failure may truncate it from here on: another process may know the length.
        with _disk_errors():
            _log_offset(self._path.with_name(PROGRESS), self._position)

    def truncate(self) -> None:
        """Drop the bytes that were written since the file was opened, unless its length was logged."""
        os.ftruncate(self._descriptor, self._start)

    def close(self) -> None:
        os.close(self._descriptor)


def digest_of(path: Path) -> str:
    """The SHA-256 of a transfer's file, in hexadecimal. Raises TransferDamaged if the file is missing."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise TransferDamaged from None


def _log_offset(path: Path, offset: int) -> None:
    """Add an entry to a log, and wait until it is on the disk. A failure leaves no entry."""
    entry = b":%013d\n" % offset
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        size = os.fstat(descriptor).st_size
        try:
            if os.write(descriptor, entry) < len(entry):
                raise OSError(errno.ENOSPC, "The entry has no room.")
            os.fdatasync(descriptor)
            if not size:
                sync_folder(path.parent)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def _last_offset(path: Path) -> int:
    """The offset in the last whole entry of a log; 0 without one."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_END))
        entries: list[bytes] = _ENTRY.findall(file.read())
        return int(entries[-1]) if entries else 0
    return 0


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise StorageFull for a full disk, and TransferDamaged if the file or its folder is missing."""
    try:
        with full_disk():
            yield
    except FileNotFoundError:
        raise TransferDamaged from None


class PartWriter:
    """Writes blocks to a file in a worker thread: one batch is written while the next one arrives.

    A large block that is still in the socket is received, written and synced by one visit.
    `open_file` runs in the worker thread as well. A write that fails truncates the file to its length before.
    `logs` adds the new length to the log of offsets.
    """

    def __init__(self, open_file: Callable[[], PartFile], *, logs: bool = False) -> None:
        self._open_file = open_file
        self._logs = logs
        self._file: PartFile | None = None
        self._visit: asyncio.Future[None] | None = None
        self._is_synced = False

    async def write(
        self, blocks: AsyncIterator[bytes] | AsyncIterator[bytes | SocketBody], reserve: Reserve | None = None
    ) -> int:
        """Write all blocks in order, sync the file, close it, and return the number of bytes.

        `reserve` is called with a number of bytes before so many are written; its error ends the write.
        Raises StorageFull and TransferDamaged.
        """
        count = size = 0
        batch: list[bytes] = []
        try:
            async for block in blocks:
                if isinstance(block, SocketBody):
                    if reserve:
                        await reserve(count + block.limit)
                    await self._receive(batch, block)
                    batch, size = [], 0
                elif size >= BATCH or len(batch) >= MAX_BLOCKS:
                    if reserve:
                        await reserve(count)
                    await self._start_visit(batch)
                    batch, size = [block], len(block)
                else:
                    batch.append(block)
                    size += len(block)
                count += len(block)
            if reserve:
                await reserve(count)
            if batch or not self._is_synced or self._logs:
                await self._start_visit(batch, last=True)
            await self._end_visit()
            self._close()
        except BaseException:
            await asyncio.shield(self._undo())  # It ends even if the request is cancelled once more.
            raise
        return count

    async def _start_visit(self, batch: Sequence[bytes], *, last: bool = False) -> None:
        await self._end_visit()
        write = self._write_last if last else self._write_batch
        self._visit = asyncio.get_running_loop().run_in_executor(None, write, batch)

    async def _receive(self, batch: Sequence[bytes], body: SocketBody) -> None:
        await self._end_visit()
        await body.receive(_PartSink(self, batch))

    async def _end_visit(self) -> None:
        if self._visit is not None:
            await asyncio.wait([self._visit])  # Awaited itself, it would be cancelled with us while the thread writes.
            self._visit.result()

    def _write_batch(self, blocks: Sequence[bytes | memoryview], *, last: bool = False) -> None:
        if self._file is None:
            self._file = self._open_file()
        self._is_synced = False
        self._file.write(cast("Sequence[bytes]", blocks))  # A memoryview is as good.
        if last:
            self._file.sync()
            self._is_synced = True

    def _write_last(self, blocks: Sequence[bytes | memoryview]) -> None:
        if blocks or not self._is_synced:
            self._write_batch(blocks, last=True)
        if self._logs and self._file is not None:
            self._file.log()
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _undo(self) -> None:
        if self._visit is not None:
            await asyncio.gather(self._visit, return_exceptions=True)
        await asyncio.to_thread(self._truncate)

    def _truncate(self) -> None:
        if self._file is not None:
            with closing(self._file) as file:
                file.truncate()


class _PartSink:
    """Writes received bytes after those that were read before, and syncs the file at the end."""

    def __init__(self, writer: PartWriter, before: Sequence[bytes]) -> None:
        self._writer = writer
        self._before = before

    def write(self, block: memoryview) -> None:
        self._writer._write_batch([*self._before, block])
        self._before = ()

    def end(self) -> None:
        self._writer._write_batch(self._before, last=True)
