"""The signature of MSIX and APPX packages: digests of the ZIP file, and a map with the digests of all blocks.

The ZIP file has no gaps: files, then the directory, then its end.
"""

import base64
import hashlib
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import BinaryIO
from urllib.parse import unquote
from xml.parsers import expat

from upload_service.inspection.model import Altered, Signature, SignatureState, Unsupported
from upload_service.inspection.signatures.authenticode import BLOCK, PACKAGE_DATA, block_digest, read_at, verify_all
from upload_service.inspection.signatures.trust import TrustStore

DIRECTORY_LIMIT = 32 << 20  # bytes
_END, _END64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY, _LOCAL = struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s5H3I2H")
_HAS_DESCRIPTOR, _IS_ENCRYPTED = 8, 1
_DESCRIPTORS = {12, 16, 20, 24}  # lengths
_LONG, _LONG_SIZES = 0xFFFFFFFF, 1
_STORED, _DEFLATED = 0, 8

SIGNATURE_SIZE = 1 << 20  # bytes
MAP_SIZE = 16 << 20  # bytes
BLOCK_SIZE = 64 << 10  # bytes of a file that have one digest
_SIGNATURE, _MAGIC = "AppxSignature.p7x", b"PKCX"
_MAP, _TYPES, _CODE = "AppxBlockMap.xml", "[Content_Types].xml", "AppxMetadata/CodeIntegrity.cat"
_BUNDLE = "AppxMetadata/AppxBundleManifest.xml"
_PACKAGE = re.compile(r"[^/]+\.(msix|appx)", re.IGNORECASE)
_METHODS = {
    "http://www.w3.org/2001/04/xmlenc#sha256": "sha256",
    "http://www.w3.org/2001/04/xmldsig-more#sha384": "sha384",
    "http://www.w3.org/2001/04/xmlenc#sha512": "sha512",
}
_ELSEWHERE = {0xFFFF, 0xFFFFFFFF}  # A number of the end that is in the end of ZIP64.
# The parts of the signed value: the files of the ZIP, its directory, and three files.
_PARTS = ("AXPC", "AXCD", "AXCT", "AXBM", "AXCI")


@dataclass(frozen=True)
class _Member:
    """A file of the archive. `record` is its entry of the directory; `start` and `data` are where it begins."""

    name: str
    record: bytes
    start: int
    data: int
    compressed: int
    size: int
    crc: int
    is_deflated: bool


@dataclass(frozen=True)
class _MappedFile:
    size: int
    digests: list[bytes]


def verify_package(file: BinaryIO, size: int, trust: TrustStore, now: datetime) -> list[Signature]:
    """The verdicts about the signatures of a package, which is unsigned without any."""
    package = _read_package(file, size)
    if _SIGNATURE not in package.members:
        if _MAP in package.members:
            return [Signature(SignatureState.UNSIGNED)]
        raise Unsupported("Archives have no signature.")
    signature = package.content(_SIGNATURE, SIGNATURE_SIZE)
    if not signature.startswith(_MAGIC) or [*package.members][-1] != _SIGNATURE:
        raise Altered("The signature is malformed, or not the last file of the package.")
    package.check_blocks()
    return verify_all(signature[len(_MAGIC) :], PACKAGE_DATA, cache(package.digests), trust, now)


@dataclass(frozen=True)
class _Package:
    """A ZIP file: its files in their order, and what follows the directory.

    `long_end` and `locator` are empty in a short ZIP.
    """

    file: BinaryIO
    members: Mapping[str, _Member]
    long_end: bytes
    locator: bytes
    end: bytes

    def digests(self, name: str) -> bytes:
        """The value that is signed: the digests of the package without its signature."""
        *files, signature = self.members.values()
        digests = [
            block_digest(name, self.file, (0, signature.start)),
            hashlib.new(name, self._directory(files, signature.start)).digest(),
        ]
        parts = [_TYPES, _MAP, *({_CODE} & self.members.keys())]
        digests += [hashlib.new(name, self.content(part, MAP_SIZE)).digest() for part in parts]
        return b"APPX" + b"".join(part.encode() + one for part, one in zip(_PARTS, digests, strict=False))

    def _directory(self, files: list[_Member], start: int) -> bytes:
        """The directory and the end as they would be without the signature."""
        records = b"".join(member.record for member in files)
        count, length = len(files), len(records)
        end, long_end, locator = self.end, self.long_end, self.locator
        if long_end:
            long_end = long_end[:24] + struct.pack("<4Q", count, count, length, start) + long_end[56:]
            locator = locator[:8] + struct.pack("<Q", start + length) + locator[16:]
        values = zip(struct.unpack_from("<HHII", end, 8), (count, count, length, start), strict=True)
        kept = [old if old in _ELSEWHERE else new for old, new in values]
        return records + long_end + locator + end[:4] + bytes(4) + struct.pack("<HHII", *kept) + end[20:]

    def check_blocks(self) -> None:
        """Raise Altered unless the block map has all files of the package and the digests of all their blocks."""
        method, mapped_files = _read_block_map(self.content(_MAP, MAP_SIZE))
        unmapped = {_MAP, _TYPES, _SIGNATURE, _CODE}
        is_bundle = _BUNDLE in self.members
        for name, member in self.members.items():
            mapped = mapped_files.pop(unquote(name).replace("/", "\\"), None)
            if mapped is not None:
                self._check(member, mapped, method)
            elif name not in unmapped and not (is_bundle and _PACKAGE.fullmatch(name)):
                raise Altered("A file of the package is not in its block map.")
        if mapped_files:
            raise Altered("A file of the block map is not in the package.")

    def _check(self, member: _Member, mapped: _MappedFile, method: str) -> None:
        digests = iter(mapped.digests)
        for block in self._blocks(member):
            if hashlib.new(method, block).digest() != next(digests, b""):
                raise Altered("A file of the package was changed.")
        if next(digests, None) is not None or mapped.size != member.size:
            raise Altered("A file of the package was cut.")

    def content(self, name: str, limit: int) -> bytes:
        """A small file of the package. Raises Altered without it, and Unsupported if it is too long."""
        member = self.members.get(name)
        if member is None:
            raise Altered(f"The package has no {name}.")
        if member.size > limit:
            raise Unsupported("A file of the package is too long.")
        content = b"".join(self._blocks(member))
        if zlib.crc32(content) != member.crc:
            raise Altered("A file of the package was changed.")
        return content

    def _blocks(self, member: _Member) -> Iterator[bytes]:
        """The content in blocks. Raises Altered if it is not as long as the directory says."""
        rest = bytearray()
        size = 0
        for piece in self._pieces(member):
            rest += piece
            size += len(piece)
            if size > member.size:
                break
            while len(rest) >= BLOCK_SIZE:
                yield bytes(rest[:BLOCK_SIZE])
                del rest[:BLOCK_SIZE]
        if rest:
            yield bytes(rest)
        if size != member.size:
            raise Altered("A file of the package is not as long as the directory says.")

    def _pieces(self, member: _Member) -> Iterator[bytes]:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS) if member.is_deflated else None
        end = member.data + member.compressed
        for at in range(member.data, end, BLOCK):
            piece = read_at(self.file, at, min(BLOCK, end - at))
            if inflater is None:
                yield piece
                continue
            while piece:
                yield inflater.decompress(piece, BLOCK)
                piece = inflater.unconsumed_tail
        if inflater is not None:
            yield inflater.flush()
            if not inflater.eof or inflater.unused_data:
                raise Altered("A file of the package has data after its end.")


def _read_block_map(text: bytes) -> tuple[str, dict[str, _MappedFile]]:
    """The digest that a block map uses, and its files by their names. Entities are refused, so none can expand."""
    files: dict[str, _MappedFile] = {}
    method = ""
    digests: list[bytes] = []  # of the file that began last

    def begin(name: str, attributes: dict[str, str]) -> None:
        nonlocal method, digests
        match name.rpartition(" ")[2]:
            case "BlockMap" if not method:
                if attributes.get("HashMethod") not in _METHODS:
                    raise Altered("The block map of the package uses a digest that is not accepted.")
                method = _METHODS[attributes["HashMethod"]]
            case "File":
                if attributes["Name"] in files:
                    raise Altered("A file is in the block map twice.")
                digests = []
                files[attributes["Name"]] = _MappedFile(int(attributes["Size"]), digests)
            case "Block":
                digests.append(base64.b64decode(attributes["Hash"], validate=True))

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartDoctypeDeclHandler = _reject_doctype
    parser.StartElementHandler = begin
    parser.Parse(text, True)
    return method, files


def _reject_doctype(*_: object) -> None:
    raise Altered("The block map of the package is malformed.")


def _read_package(file: BinaryIO, size: int) -> _Package:
    """Read a ZIP file. Raises Altered if a byte belongs to nothing, or a file occurs twice."""
    end = read_at(file, size - 22, 22)
    disk, first_disk, disk_count, count, length, directory, comment = struct.unpack("<4x4HIIH", end)
    locator = read_at(file, size - 42, 20) if size >= 42 else b""
    is_long = locator.startswith(_LOCATOR)
    if disk_count != count or {disk, first_disk} - ({0, 0xFFFF} if is_long else {0}):
        raise Altered("The package is a part of several.")
    long_end, end_start = b"", size - 22
    if is_long:
        (end_start,) = struct.unpack("<8xQ4x", locator)
        long_end = read_at(file, end_start, size - 42 - end_start)
        fixed, disks, disk_count, count, length, directory = struct.unpack("<4xQ4xQ4Q", long_end[:56])
        is_whole = fixed == len(long_end) - 12 and disk_count == count and not disks
        if not long_end.startswith(_END64) or not is_whole:
            raise Altered("The end of the package is malformed.")
    if not end.startswith(_END) or comment or directory + length != end_start or length > DIRECTORY_LIMIT:
        raise Altered("The end of the package is malformed, or data was added.")
    members = [*_members(file, read_at(file, directory, length), directory)]
    if len(members) != count or len({member.name.lower() for member in members}) != count:
        raise Altered("A file is in the package twice.")
    by_name = {member.name: member for member in members}
    return _Package(file, by_name, long_end, locator if is_long else b"", end)


def _entries(records: bytes) -> Iterator[_Member]:
    """The files that a directory lists; `data` is where its local header begins."""
    at = 0
    while at < len(records):
        fields = _ENTRY.unpack_from(records, at)
        flags, method, crc, compressed, size, name_length, extra_length, comment_length = (
            fields[number] for number in (3, 4, 7, 8, 9, 10, 11, 12)
        )
        name_start, name_end = at + _ENTRY.size, at + _ENTRY.size + name_length
        end = name_end + extra_length + comment_length
        if fields[0] != b"PK\x01\x02" or end > len(records) or flags & _IS_ENCRYPTED:
            raise Altered("The directory of the package is malformed.")
        if method not in {_STORED, _DEFLATED}:
            raise Unsupported("A file of the package is compressed in an unknown way.")
        extra = records[name_end : name_end + extra_length]
        size, compressed, start = _long_sizes(extra, (size, compressed, fields[16]))
        name = records[name_start:name_end].decode()
        yield _Member(name, records[at:end], start, start, compressed, size, crc, method == _DEFLATED)
        at = end


def _members(file: BinaryIO, records: bytes, directory: int) -> Iterator[_Member]:
    """The files, which begin at the start of the archive and follow one another."""
    entries = [*_entries(records)]
    position = 0
    for member, end in zip(entries, [*(entry.start for entry in entries[1:]), directory], strict=True):
        signature, *local, name_length, extra_length = _LOCAL.unpack(read_at(file, member.start, _LOCAL.size))
        name_start = member.start + _LOCAL.size
        data = name_start + name_length + extra_length
        listed = list(_ENTRY.unpack_from(member.record)[2:10])
        has_descriptor = bool(listed[1] & _HAS_DESCRIPTOR)
        # Only the last file is not covered by a digest: it is the signature.
        is_same = local == listed if end == directory and not has_descriptor else local[1:3] == listed[1:3]
        if member.start != position or signature != b"PK\x03\x04" or not is_same:
            raise Altered("A file of the package is not as the directory says.")
        if read_at(file, name_start, name_length).decode() != member.name:
            raise Altered("A file of the package is not as the directory says.")
        if end - data - member.compressed not in (_DESCRIPTORS if has_descriptor else {0}):
            raise Altered("The package has data between its files.")
        yield replace(member, data=data)
        position = end


def _long_sizes(extra: bytes, sizes: tuple[int, int, int]) -> Sequence[int]:
    """The size, the compressed size and the start of a file; those that are too long are in an extra field."""
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<HH", extra)
        if kind == _LONG_SIZES:
            values = (value for (value,) in struct.iter_unpack("<Q", extra[4 : 4 + length // 8 * 8]))
            return [next(values, 0) if size == _LONG else size for size in sizes]
        extra = extra[4 + length :]
    return sizes
