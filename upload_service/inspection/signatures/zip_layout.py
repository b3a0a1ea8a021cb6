"""The layout of a ZIP file without gaps: files, then the directory, then its end."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from upload_service.inspection.signatures.model import Altered, Unsupported
from upload_service.inspection.signatures.streams import read_at

DIRECTORY_LIMIT = 32 << 20  # bytes
_END, _END64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY, _LOCAL = struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s5H3I2H")
_HAS_DESCRIPTOR, _IS_ENCRYPTED = 8, 1
_DESCRIPTORS = {12, 16, 20, 24}  # lengths
_LONG, _LONG_SIZES = 0xFFFFFFFF, 1
_STORED, _DEFLATED = 0, 8


@dataclass(frozen=True)
class Member:
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
class Layout:
    """The files in their order, and what follows the directory. `long_end` and `locator` are empty in a short ZIP."""

    members: Sequence[Member]
    long_end: bytes
    locator: bytes
    end: bytes


def read_layout(file: BinaryIO, size: int) -> Layout:
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
    return Layout(members, long_end, locator if is_long else b"", end)


def _entries(records: bytes) -> Iterator[Member]:
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
        yield Member(name, records[at:end], start, start, compressed, size, crc, method == _DEFLATED)
        at = end


def _members(file: BinaryIO, records: bytes, directory: int) -> Iterator[Member]:
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
