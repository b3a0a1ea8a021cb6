"""The files of transfers, in the folder that all replicas share. Everything here blocks: call it in a worker thread."""

import errno
import glob
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Protocol, Self

from upload_service.content_range import plain_name
from upload_service.model import StorageFull, TransferDamaged, Upload

TRANSFERS = "transfers"  # the folder of a tenant's folder that has them
BLOCK = 1 << 20  # bytes


class Digest(Protocol):
    """A running SHA-256."""

    def update(self, data: bytes, /) -> None: ...
    def copy(self) -> Self: ...
    def hexdigest(self) -> str: ...


class PartFiles:
    """Finds, opens and removes them. Each has a folder of its own, which no other transfer ever uses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, upload: Upload) -> Path:
        """The file that has a transfer's bytes. Raises ValueError for a record whose names lead elsewhere."""
        return self._transfers(upload) / plain_name(f"{upload.upload_id}.{upload.generation}") / self._name(upload)

    def open(self, upload: Upload, digest: Digest | None) -> "PartFile":
        """The transfer's file, cut to its offset, to be written from there; `digest` is fed with what is written.

        Raises:
            StorageFull: there is no room.
            TransferDamaged: bytes that were acknowledged are not there.
        """
        return PartFile(self.path(upload), upload.offset, digest)

    def copy(self, upload: Upload, part: int) -> Digest:
        """Copy the acknowledged bytes to the file of another `part`; their digest. Without an end nothing is left.

        Raises:
            StorageFull: there is no room.
            TransferDamaged: bytes that were acknowledged are not there.
        """
        copy = replace(upload, generation=part)
        digest = hashlib.sha256()
        if not upload.offset:
            return digest
        if shutil.disk_usage(self._folder).free < upload.offset:
            raise StorageFull
        try:
            source = self.path(upload).open("rb")
        except FileNotFoundError:
            raise TransferDamaged from None
        with source:
            try:
                self._fill(copy, source, digest)
            except BaseException:
                self._remove(self.path(copy).parent, upload)
                raise
        return digest

    def remove(self, upload: Upload) -> None:
        """Remove every file of a transfer; what is not there already is fine."""
        for folder in self._folders(upload):
            self._remove(folder, upload)

    def remove_older(self, upload: Upload) -> None:
        """Remove the files that a transfer had before its `part`, and never one of a take-over that came after."""
        for folder in self._folders(upload):
            part = folder.name.rpartition(".")[2]
            if part.isdecimal() and int(part) < upload.generation:
                self._remove(folder, upload)

    def _fill(self, copy: Upload, source: BinaryIO, digest: Digest) -> None:
        rest = copy.offset
        with closing(PartFile(self.path(copy), 0, digest)) as file:
            while rest:
                block = source.read(min(rest, BLOCK))
                if not block:
                    raise TransferDamaged
                file.write([block])
                rest -= len(block)
            file.sync()

    def _remove(self, folder: Path, upload: Upload) -> None:
        (folder / self._name(upload)).unlink(missing_ok=True)
        with suppress(FileNotFoundError):  # Another process may have been faster.
            folder.rmdir()

    def _folders(self, upload: Upload) -> Iterator[Path]:
        """The folders of a transfer, one for each `part`."""
        return self._transfers(upload).glob(f"{plain_name(glob.escape(upload.upload_id))}.*")

    def _name(self, upload: Upload) -> str:
        return plain_name(f"upload_{upload.original_file_id or upload.file_id}.part")

    def _transfers(self, upload: Upload) -> Path:
        return self._folder / plain_name(upload.tenant_id) / TRANSFERS


class PartFile:
    """A file that grows. Closed by `close`, with everything on the disk after `sync`."""

    def __init__(self, path: Path, offset: int, digest: Digest | None) -> None:
        self._path = path
        self._start = self._position = offset
        self._digest = digest
        with full_disk():
            if not offset:
                path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            try:
                self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | (0 if offset else os.O_CREAT), 0o640)
            except FileNotFoundError:
                raise TransferDamaged from None
        try:
            if os.fstat(self._descriptor).st_size < offset:
                raise TransferDamaged
            os.ftruncate(self._descriptor, offset)
        except BaseException:
            os.close(self._descriptor)
            raise

    def write(self, blocks: Sequence[bytes]) -> None:
        """Write and hash the next bytes.

        Raises:
            StorageFull: there is no room.
        """
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
        """Wait until the disk has it. Raises StorageFull where the disk finds out only now."""
        with full_disk():
            os.fsync(self._descriptor)
            if not self._start:
                folder = self._path.parent
                for path in (folder, *list(folder.parents)[:3]):
                    sync_folder(path)

    def truncate(self) -> None:
        """Give back the room of bytes that do not count."""
        os.ftruncate(self._descriptor, self._start)

    def close(self) -> None:
        os.close(self._descriptor)


def sync_folder(path: Path) -> None:
    """Wait until the disk has the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest_of(path: Path) -> str:
    """The SHA-256 of a transfer's file, in hexadecimal. Raises TransferDamaged where it is missing."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise TransferDamaged from None


@contextmanager
def full_disk() -> Iterator[None]:
    """Say StorageFull where the disk has no room."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StorageFull from error
        raise
