"""An archive: an ordinary tar file whose first entry, the manifest, says what all others are.

Whoever reads one takes nothing on trust: each header must be that of the very next file that the manifest names, with
its size, a plain file; and what was read counts once its SHA-256 is right. Nothing is compressed, for installers are.
"""

import hashlib
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from tarfile import BLOCKSIZE, GNU_FORMAT, REGTYPE, HeaderError, TarInfo
from types import TracebackType
from typing import Self

from deploy.backup.manifest import ArchiveManifest, BackupProblem, Entry, parse
from upload_service.uploads.part_files import BLOCK, sync_folder

MANIFEST = "manifest.json"
RECORDS, FILES = "records/", "files/"
MOST_MANIFEST = 512 << 20  # bytes
END = bytes(2 * BLOCKSIZE)


class ArchiveMismatch(BackupProblem):
    """The archive ends, or goes on, otherwise than its manifest says."""


def is_archive(path: Path) -> bool:
    """Whether a file begins as an archive does. Raises OSError."""
    with path.open("rb") as file:
        try:
            return TarInfo.frombuf(file.read(BLOCKSIZE), "utf-8", "strict").name == MANIFEST
        except HeaderError:
            return False


class ArchiveReader(AbstractContextManager["ArchiveReader"]):
    """Reads entries in the order of the manifest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def position(self) -> int:
        return self._file.tell()

    def manifest(self) -> tuple[ArchiveManifest, str]:
        """The manifest and its SHA-256; to be read first. Raises BackupProblem."""
        header = self._header()
        if header.name != MANIFEST or header.size > MOST_MANIFEST:
            raise self._wrong("does not begin with a manifest")
        text = self._file.read(header.size)
        self._skip_padding(header.size)
        return parse(ArchiveManifest, text, str(self._path)), hashlib.sha256(text).hexdigest()

    def read(self, folder: str, entry: Entry) -> Iterator[bytes]:
        """The next entry in blocks. Raises NotAsSaid at its end where it is another than the manifest says."""
        self._expect(folder, entry)
        digest, left = hashlib.sha256(), entry.size
        while left:
            block = self._file.read(min(left, BLOCK))
            if not block:
                raise self._wrong(f"ends within {entry.name}")
            left -= len(block)
            digest.update(block)
            yield block
        self._skip_padding(entry.size)
        if digest.hexdigest() != entry.sha256:
            raise self._wrong(f"{entry.name} is damaged")

    async def stream(self, folder: str, entry: Entry) -> AsyncGenerator[bytes, None]:
        """The same for who waits for blocks."""
        for block in self.read(folder, entry):
            yield block

    def skip(self, folder: str, entry: Entry) -> None:
        """Go past the next entry. Raises NotAsSaid where it is another."""
        self._expect(folder, entry)
        self._file.seek(entry.size, os.SEEK_CUR)
        self._skip_padding(entry.size)

    def end(self) -> None:
        """Raises NotAsSaid where there is more than the manifest says."""
        if self._file.read(BLOCKSIZE) != END[:BLOCKSIZE]:
            raise self._wrong("does not end where its manifest ends")

    def _expect(self, folder: str, entry: Entry) -> None:
        header = self._header()
        if (header.name, header.size) != (folder + entry.name, entry.size):
            raise self._wrong(f"does not go on with {entry.name}, which its manifest names next")

    def _header(self) -> TarInfo:
        try:
            header = TarInfo.frombuf(self._file.read(BLOCKSIZE), "ascii", "strict")
        except (HeaderError, UnicodeError):
            raise self._wrong("is no archive, or ends too early") from None
        if header.type != REGTYPE or header.size < 0:
            raise self._wrong("holds something that is no plain file")
        return header

    def _skip_padding(self, size: int) -> None:
        self._file.seek(-size % BLOCKSIZE, os.SEEK_CUR)

    def _wrong(self, what: str) -> ArchiveMismatch:
        return ArchiveMismatch(f"{self._path}: {what}")


class ArchiveWriter(AbstractContextManager["ArchiveWriter"]):
    """Writes entries to a file of another name, which becomes the archive at its end."""

    def __init__(self, path: Path, position: int) -> None:
        """Go on at this byte of what was begun; 0 begins anew."""
        self._path = path
        self._begun = begun(path)
        self._file = os.fdopen(os.open(self._begun, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        self.go_back(position)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def position(self) -> int:
        return self._file.tell()

    def go_back(self, position: int) -> None:
        """Forget what was written after this byte."""
        self._file.seek(position)
        self._file.truncate()

    def manifest(self, manifest: ArchiveManifest) -> None:
        text = manifest.model_dump_json(indent=1).encode()
        self.header(MANIFEST, len(text))
        self.write(text)
        self.pad(len(text))

    def header(self, name: str, size: int) -> None:
        header = TarInfo(name)
        header.size, header.mode = size, 0o600
        self._file.write(header.tobuf(GNU_FORMAT))  # one block: names are short, and sizes may be of 12 bytes

    def write(self, block: bytes) -> None:
        self._file.write(block)

    def pad(self, size: int) -> None:
        self._file.write(bytes(-size % BLOCKSIZE))

    def finish(self) -> None:
        """Let it be the archive, once the disk has all of it."""
        self._file.write(END)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._begun.replace(self._path)
        sync_folder(self._path.absolute().parent)


def begun(path: Path) -> Path:
    """Where an archive is written."""
    return path.with_name(f"{path.name}.part")
