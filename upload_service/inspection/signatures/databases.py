"""The signature of Windows Installer databases: a digest of the streams of an OLE file, read in blocks."""

import hashlib
import uuid
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any, BinaryIO

import olefile

from upload_service.inspection.signatures.authenticode import PACKAGE_DATA, verify_all
from upload_service.inspection.signatures.model import Altered, Signature, SignatureState, Unsupported
from upload_service.inspection.signatures.streams import BLOCK, read_at, without_padding
from upload_service.inspection.signatures.trust import TrustStore

SIGNATURE_SIZE = 1 << 20  # bytes
_SIGNATURE, _EXTENDED = "\x05DigitalSignature", "\x05MsiDigitalSignatureEx"
_FREE = 0xFFFFFFFF  # in the table of sectors


def verify(file: BinaryIO, size: int, trust: TrustStore, now: datetime) -> list[Signature]:
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
        digest = cache(database.digest)
        return verify_all(content, PACKAGE_DATA, lambda name, value: digest(name) == value, trust, now)


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
