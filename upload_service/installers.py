"""Installer files on disk, one folder for each tenant. Everything here blocks: call it in a worker thread."""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, Self

from common.tenants import is_tenant_id
from upload_service.model import InstallerMissing, Status, StorageFull, TransferDamaged, Upload
from upload_service.ranges import SUFFIXES


class Digest(Protocol):
    """A running SHA-256."""

    def update(self, data: bytes, /) -> None: ...
    def copy(self) -> Self: ...
    def hexdigest(self) -> str: ...


class Installers:
    """The folder that all replicas share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, upload: Upload) -> Path:
        """Where the bytes of an upload are."""
        if not upload.server_filename:
            return self._part_path(upload)
        return self._folder / upload.tenant_id / upload.server_filename

    def open_part(self, upload: Upload, digest: Digest | None) -> "PartFile":
        """The transfer's file, cut to its offset, to be written from there; `digest` is fed with what is written.

        Raises:
            StorageFull: there is no room.
            TransferDamaged: bytes that were acknowledged are not there.
        """
        part = self.path(upload)
        with _full_disk():
            part.parent.mkdir(mode=0o750, exist_ok=True)
            self._name_back(upload)
            return PartFile(part, upload.offset, digest)

    def open_stored(self, upload: Upload, offset: int) -> "StoredBytes":
        """What is stored from `offset` on, to compare with. Raises InstallerMissing."""
        if upload.status is Status.OPEN:
            self._name_back(upload)
        return StoredBytes(self.path(upload), offset)

    def finish(self, upload: Upload, server_filename: str) -> None:
        """Give a whole, synced file its final name, for good.

        Raises:
            StorageFull: there is no room, not even for a name.
        """
        part = self.path(upload)
        with _full_disk():
            part.rename(part.with_name(server_filename))
            folder = os.open(part.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def remove(self, upload: Upload) -> None:
        """Remove every file that an upload may have; what is not there already is fine."""
        if not upload.server_filename:
            self._part_path(upload).unlink(missing_ok=True)
        for path in self._final_paths(upload):
            path.unlink(missing_ok=True)

    def remove_tenant(self, tenant_id: str) -> None:
        """Remove a tenant's whole folder. Raises ValueError for an id that no tenant can have."""
        if not is_tenant_id(tenant_id):  # It would be another folder.
            raise ValueError("not a tenant's id")
        folder = self._folder / tenant_id
        if folder.exists():
            shutil.rmtree(folder)

    def _name_back(self, upload: Upload) -> None:
        """Undo the renaming of an open transfer's file by a process that died before it could say so."""
        for renamed in self._final_paths(upload):
            if renamed.exists():
                renamed.rename(self.path(upload))

    def _part_path(self, upload: Upload) -> Path:
        return self._folder / upload.tenant_id / f"upload_{upload.file_id}.part"

    def _final_paths(self, upload: Upload) -> Iterator[Path]:
        for suffix in SUFFIXES:
            yield self._folder / upload.tenant_id / f"{upload.upload_id}{suffix}"


class PartFile:
    """A file that grows. Closed by `close`, with everything on the disk after `sync`."""

    def __init__(self, path: Path, offset: int, digest: Digest | None) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._start = self._position = offset
        self._digest = digest
        try:
            if os.fstat(self._descriptor).st_size < offset:
                raise TransferDamaged
            os.ftruncate(self._descriptor, offset)
        except BaseException:
            os.close(self._descriptor)
            raise

    def take(self, blocks: Sequence[bytes]) -> None:
        """Write and hash the next bytes.

        Raises:
            StorageFull: there is no room.
        """
        with _full_disk():
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
        with _full_disk():
            os.fsync(self._descriptor)

    def cut(self) -> None:
        """Give back the room of bytes that do not count."""
        os.ftruncate(self._descriptor, self._start)

    def close(self) -> None:
        os.close(self._descriptor)


class StoredBytes:
    """Bytes that are stored already, to be compared with bytes that come again."""

    def __init__(self, path: Path, offset: int) -> None:
        """Raises InstallerMissing."""
        try:
            self._file = path.open("rb")
        except FileNotFoundError:
            raise InstallerMissing("The file of this transfer is not on the disk.") from None
        self._file.seek(offset)
        self.same = True

    def take(self, blocks: Sequence[bytes]) -> None:
        """Compare the next bytes; `same` is false from the first difference on."""
        for block in blocks:
            self.same = self.same and self._file.read(len(block)) == block

    def close(self) -> None:
        self._file.close()


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _full_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StorageFull from error
        raise
