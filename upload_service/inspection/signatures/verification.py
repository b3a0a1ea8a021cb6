"""Verification of a file's signatures, by the kind of the file: a program, an MSI, or a package.

`python -m upload_service.inspection.signatures.verification [PATH]` verifies the file on standard input and prints the
verdict. PATH has the trusted certificates. Without a verdict the exit status tells why.
"""

import hashlib
import os
import struct
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import cryptography.hazmat.backends.openssl.backend  # noqa: F401  the library imports it at its first use
import olefile
import orjson

from common.concurrency.confinement import OUT_OF_MEMORY, confine
from upload_service.inspection.formats.msi import load_encodings
from upload_service.inspection.model import (
    ARCHIVE_MAGIC,
    MAGIC_LENGTH,
    OLE_MAGIC,
    PROGRAM_MAGIC,
    Altered,
    Signature,
    SignatureProblem,
    SignatureState,
    Unsupported,
    worst,
)
from upload_service.inspection.signatures.authenticode import (
    BLOCK,
    PACKAGE_DATA,
    PROGRAM_DATA,
    block_digest,
    read_at,
    verify_all,
    without_padding,
)
from upload_service.inspection.signatures.packages import verify_package
from upload_service.inspection.signatures.trust import TrustStore, read_trusted

MEMORY = 192 << 20  # bytes
CPU_TIME = 15  # seconds, for half a gigabyte
SIGNATURES_SIZE = 4 << 20  # bytes of all signatures of a program
SIGNATURE_SIZE = 1 << 20  # bytes of an MSI's
_CHECKSUM = 64  # where it is in the optional header
_DIRECTORIES = {0x10B: 96, 0x20B: 112}  # where they are in the optional header, by its magic
_SECURITY = 4  # the number of the directory that has the signatures
_REVISION, _SIGNED_DATA = 0x200, 2
_SIGNATURE, _EXTENDED = "\x05DigitalSignature", "\x05MsiDigitalSignatureEx"
_FREE = 0xFFFFFFFF  # in the table of sectors


def verify_file(file: BinaryIO, size: int, trust: TrustStore, now: datetime | None = None) -> Signature:
    """The verdict about a file of so many bytes. Raises MemoryError if the process may use no more memory."""
    file.seek(0)
    head = file.read(MAGIC_LENGTH)
    now = now or datetime.now(UTC)
    try:
        if head == OLE_MAGIC:
            return worst(verify_database(file, size, trust, now))
        if head.startswith(PROGRAM_MAGIC):
            return worst(verify_program(file, size, trust, now))
        if head.startswith(ARCHIVE_MAGIC):
            return worst(verify_package(file, size, trust, now))
    except SignatureProblem as problem:
        return Signature(problem.state, str(problem))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  hostile files cause errors of many kinds in the libraries
        return Signature(SignatureState.INVALID, "The file or its signature is malformed.")
    return Signature(SignatureState.UNSUPPORTED, "Files of this kind have no signature.")


def verify_program(file: BinaryIO, size: int, trust: TrustStore, now: datetime) -> list[Signature]:
    """The verdicts about the signatures of a program, which is unsigned without any."""
    (header,) = struct.unpack("<I", read_at(file, 60, 4))
    if header + 24 > size or read_at(file, header, 4) != b"PE\0\0":
        raise Unsupported("Programs of this kind have no signature.")
    optional = header + 24
    (magic,) = struct.unpack("<H", read_at(file, optional, 2))
    if magic not in _DIRECTORIES:
        raise Unsupported("Programs of this kind have no signature.")
    (length,) = struct.unpack("<H", read_at(file, header + 20, 2))
    directories = optional + _DIRECTORIES[magic]
    (count,) = struct.unpack("<I", read_at(file, directories - 4, 4))
    entry = directories + 8 * _SECURITY
    if count <= _SECURITY or entry + 8 > optional + length:
        return [Signature(SignatureState.UNSIGNED)]
    start, table_size = struct.unpack("<II", read_at(file, entry, 8))
    if not start and not table_size:
        return [Signature(SignatureState.UNSIGNED)]
    if start < optional + length or start % 8 or start + table_size != size or table_size > SIGNATURES_SIZE:
        raise Altered("The signature is not at the end of the file, or data was added after it.")

    @cache
    def digest(name: str) -> bytes:
        checksum = optional + _CHECKSUM
        return block_digest(name, file, (0, checksum), (checksum + 4, entry), (entry + 8, start))

    table = read_at(file, start, table_size)
    return [
        verdict for content in _contents(table) for verdict in verify_all(content, PROGRAM_DATA, digest, trust, now)
    ]


def _contents(table: bytes) -> Iterator[bytes]:
    """The messages in the table of signatures. Raises Altered if it has anything besides."""
    at = 0
    while at < len(table):
        length, revision, kind = struct.unpack_from("<IHH", table, at)
        end = at + length
        if length <= 8 or end > len(table) or (revision, kind) != (_REVISION, _SIGNED_DATA):
            raise Altered("The signature has data that is not part of it.")
        yield without_padding(table[at + 8 : end])
        at = end + -end % 8
        if table[end:at].strip(b"\0"):
            raise Altered("The signature has data that is not part of it.")


def verify_database(file: BinaryIO, size: int, trust: TrustStore, now: datetime) -> list[Signature]:
    """The verdicts about the signatures of a database, which is unsigned without any."""
    with olefile.OleFileIO(file, raise_defects=olefile.DEFECT_INCORRECT) as ole:
        database = _Database(file, size, ole)
        signature = database.find(_SIGNATURE)
        if signature is None:
            return [Signature(SignatureState.UNSIGNED)]
        if signature.size > SIGNATURE_SIZE:
            raise Unsupported("The signature is too long.")
        database.check_end()
        content = without_padding(b"".join(database.blocks(signature)))
        return verify_all(content, PACKAGE_DATA, cache(database.digest), trust, now)


class _Database:
    """An OLE file; olefile has read its tables."""

    def __init__(self, file: BinaryIO, size: int, ole: olefile.OleFileIO) -> None:
        self._file, self._size, self._ole = file, size, ole
        self._small: bytes | None = None  # the stream with the contents of all small streams
        self._extended = self.find(_EXTENDED)

    def find(self, name: str) -> Any:
        """The entry of the root with this name, or None. olefile raises an error for a file with two."""
        return next((entry for entry in self._ole.root.kids if entry.name == name), None)

    def check_end(self) -> None:
        """Raise Altered if data follows the last sector in use; the sector after the header has number 0."""
        sector = self._ole.sector_size
        last = max((number for number, following in enumerate(self._ole.fat) if following != _FREE), default=-1)
        for at in range((last + 2) * sector, self._size, BLOCK):
            if read_at(self._file, at, min(BLOCK, self._size - at)).strip(b"\0"):
                raise Altered("Data was added after the end of the file.")

    def digest(self, name: str) -> bytes:
        """The digest of the file without its signature."""
        digest = hashlib.new(name)
        if self._extended is not None:
            details = hashlib.new(name)
            for part in self._details(self._ole.root):
                details.update(part)
            if b"".join(self.blocks(self._extended)) != details.digest():
                raise Altered("The names or sizes of the streams were changed after the file was signed.")
            digest.update(details.digest())
        for part in self._contents(self._ole.root):
            digest.update(part)
        return digest.digest()

    def _children(self, folder: Any) -> list[Any]:
        children = sorted(folder.kids, key=lambda entry: bytes(entry.name_utf16))
        if folder is not self._ole.root:
            return children
        return [entry for entry in children if entry.name not in {_SIGNATURE, _EXTENDED}]

    def _contents(self, folder: Any) -> Iterator[bytes]:
        """The contents of the streams in a folder, and its class."""
        for entry in self._children(folder):
            if entry.entry_type == olefile.STGTY_STORAGE:
                yield from self._contents(entry)
            else:
                yield from self.blocks(entry)
        yield _class_id(folder)

    def _details(self, entry: Any) -> Iterator[bytes]:
        """The names, sizes and times of a folder and everything in it."""
        is_root, is_stream = entry is self._ole.root, entry.entry_type == olefile.STGTY_STREAM
        yield b"" if is_root else bytes(entry.name_utf16)
        yield (entry.size & 0xFFFFFFFF).to_bytes(4, "little") if is_stream else _class_id(entry)
        yield entry.dwUserFlags.to_bytes(4, "little")
        yield b"" if is_root else entry.createTime.to_bytes(8, "little") + entry.modifyTime.to_bytes(8, "little")
        if not is_stream:
            for child in self._children(entry):
                yield from self._details(child)

    def blocks(self, entry: Any) -> Iterator[bytes]:
        """The content of a stream. A stream of few bytes is in sectors of the small stream.

        Raises Altered for another kind of entry: Windows does not read it as a stream.
        """
        if entry.entry_type != olefile.STGTY_STREAM or entry.kids:
            raise Altered("An entry of the file is not a stream.")
        if entry.size >= self._ole.minisectorcutoff:
            yield from self._sectors(entry.isectStart, entry.size)
        elif entry.size:
            if self._small is None:
                self._ole.loadminifat()
                self._small = b"".join(self._sectors(self._ole.root.isectStart, self._ole.root.size))
            table, length = self._ole.minifat, self._ole.mini_sector_size
            for number, size in _chain(table, entry.isectStart, entry.size, length):
                block = self._small[number * length : number * length + size]
                if len(block) != size:
                    raise EOFError
                yield block

    def _sectors(self, first: int, size: int) -> Iterator[bytes]:
        sector = self._ole.sector_size
        for number, length in _chain(self._ole.fat, first, size, sector):
            yield read_at(self._file, (number + 1) * sector, length)


def _chain(table: Any, number: int, size: int, sector: int) -> Iterator[tuple[int, int]]:
    """The numbers of the sectors of a stream, and how many bytes of each it has. A loop ends with its size."""
    while size > 0:
        yield number, min(size, sector)
        size -= sector
        number = table[number]


def _class_id(entry: Any) -> bytes:
    return uuid.UUID(entry.clsid).bytes_le if entry.clsid else bytes(16)


def main() -> int:
    load_encodings()
    trust = TrustStore(read_trusted(Path(sys.argv[1]) if sys.argv[1:] else None))
    confine(MEMORY, CPU_TIME)
    try:
        with open(0, "rb", closefd=False) as file:
            signature = verify_file(file, os.fstat(0).st_size, trust)
    except MemoryError:
        return OUT_OF_MEMORY
    sys.stdout.buffer.write(orjson.dumps(signature.to_document()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
