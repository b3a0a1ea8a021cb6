"""The archive file: a tar file without compression. The first entry is the manifest, the second its seal.

A reader parses nothing before it has verified the seal. Then each header must be the next file of the manifest, a
regular file of its size, and its content must have the SHA-256.
"""

import hashlib
import os
from collections.abc import AsyncGenerator
from io import BytesIO
from pathlib import Path
from shutil import copyfileobj
from tarfile import BLOCKSIZE, GNU_FORMAT, REGTYPE, HeaderError, TarInfo
from typing import BinaryIO, Self

from deploy.backup.records import ArchiveManifest, BackupProblem, Entry, Passphrase
from upload_service.storage.part_files import BLOCK, sync_folder

MANIFEST, SEAL = "manifest.json", "manifest.seal"
RECORDS, FILES = "records/", "files/"
MAX_MANIFEST, MAX_SEAL = 512 << 20, 1024  # bytes
END = bytes(2 * BLOCKSIZE)


def is_archive(path: Path) -> bool:
    """Whether a file begins like an archive. Raises OSError."""
    with path.open("rb") as file:
        try:
            return TarInfo.frombuf(file.read(BLOCKSIZE), "utf-8", "strict").name == MANIFEST
        except HeaderError:
            return False


class _ArchiveFile:
    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def position(self) -> int:
        return self._file.tell()


class ArchiveReader(_ArchiveFile):
    """Reads entries in the order of the manifest."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, path.open("rb"))

    def manifest(self, passphrase: Passphrase) -> tuple[ArchiveManifest, str]:
        """Read the manifest, first of all; the manifest and its SHA-256. Raises BackupProblem without a valid seal."""
        text = self._start(MANIFEST, MAX_MANIFEST, "does not begin with a manifest")
        seal = self._start(SEAL, MAX_SEAL, "has no seal. Export the tenant again, with a passphrase")
        if not passphrase.has_sealed(text, seal.decode("ascii", "replace")):
            raise self._mismatch(
                "its seal does not match. Either the export had another passphrase, or somebody changed the archive. "
                "Do not import it with any other passphrase than that of its export"
            )
        return ArchiveManifest.parse(text, str(self._path)), hashlib.sha256(text).hexdigest()

    def _start(self, name: str, limit: int, problem: str) -> bytes:
        """The content of one of the first two entries. Raises BackupProblem."""
        header = self._header()
        if header.name != name or header.size > limit:
            raise self._mismatch(problem)
        content = self._file.read(header.size)
        self._skip_padding(header.size)
        return content

    async def read(self, folder: str, entry: Entry) -> AsyncGenerator[bytes, None]:
        """Read the next entry in blocks. Raises BackupProblem if the archive differs; for a digest, at the end."""
        self._expect(folder, entry)
        digest, remaining = hashlib.sha256(), entry.size
        while remaining:
            block = self._file.read(min(remaining, BLOCK))
            if not block:
                raise self._mismatch(f"ends within {entry.name}")
            remaining -= len(block)
            digest.update(block)
            yield block
        self._skip_padding(entry.size)
        if digest.hexdigest() != entry.sha256:
            raise self._mismatch(f"{entry.name} is damaged")

    def skip(self, folder: str, entry: Entry) -> None:
        """Skip the next entry. Raises BackupProblem if it is another."""
        self._expect(folder, entry)
        self._file.seek(entry.size, os.SEEK_CUR)
        self._skip_padding(entry.size)

    def end(self) -> None:
        """Raise BackupProblem if there are more entries."""
        if self._file.read(BLOCKSIZE) != END[:BLOCKSIZE]:
            raise self._mismatch("has more entries than its manifest")

    def _expect(self, folder: str, entry: Entry) -> None:
        header = self._header()
        if (header.name, header.size) != (folder + entry.name, entry.size):
            raise self._mismatch(f"does not continue with {entry.name}, the next file of its manifest")

    def _header(self) -> TarInfo:
        try:
            header = TarInfo.frombuf(self._file.read(BLOCKSIZE), "ascii", "strict")
        except (HeaderError, UnicodeError):
            raise self._mismatch("is not an archive, or is incomplete") from None
        if header.type != REGTYPE or header.size < 0:
            raise self._mismatch("contains an entry that is not a regular file")
        return header

    def _skip_padding(self, size: int) -> None:
        self._file.seek(-size % BLOCKSIZE, os.SEEK_CUR)

    def _mismatch(self, reason: str) -> BackupProblem:
        return BackupProblem(f"{self._path}: {reason}")


class ArchiveWriter(_ArchiveFile):
    """Writes entries to a file of another name, and renames it at the end."""

    def __init__(self, path: Path, position: int) -> None:
        """Continue an unfinished archive at this byte; 0 begins a new one."""
        self._part = part_path(path)
        super().__init__(path, os.fdopen(os.open(self._part, os.O_RDWR | os.O_CREAT, 0o600), "r+b"))
        self.go_back(position)

    def go_back(self, position: int) -> None:
        """Remove everything after this byte."""
        self._file.seek(position)
        self._file.truncate()

    def start(self, manifest: bytes, passphrase: Passphrase) -> None:
        """Write the manifest and its seal."""
        for name, text in ((MANIFEST, manifest), (SEAL, passphrase.seal(manifest).encode())):
            self.add(name, BytesIO(text), len(text))

    def add(self, name: str, content: BinaryIO, size: int) -> None:
        self.header(name, size)
        copyfileobj(content, self._file)
        self.pad(size)

    def header(self, name: str, size: int) -> None:
        header = TarInfo(name)
        header.size, header.mode = size, 0o600
        self._file.write(header.tobuf(GNU_FORMAT))  # always one block: names are short, and GNU sizes have 12 bytes

    def write(self, block: bytes) -> None:
        self._file.write(block)

    def pad(self, size: int) -> None:
        self._file.write(bytes(-size % BLOCKSIZE))

    def finish(self) -> None:
        """Give the archive its name, once the disk has all of it."""
        self._file.write(END)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._part.replace(self._path)
        sync_folder(self._path.absolute().parent)


def part_path(path: Path) -> Path:
    """The path of an unfinished archive."""
    return path.with_name(f"{path.name}.part")
