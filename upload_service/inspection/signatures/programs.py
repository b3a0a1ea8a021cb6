"""The signatures of programs (PE files), which are at the end of the file."""

import struct
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import BinaryIO

from upload_service.inspection.signatures.authenticode import PROGRAM_DATA, verify_all
from upload_service.inspection.signatures.model import Altered, Signature, SignatureState, Unsupported
from upload_service.inspection.signatures.streams import block_digest, read_at, without_padding
from upload_service.inspection.signatures.trust import TrustStore

SIGNATURES_SIZE = 4 << 20  # bytes of all signatures
_CHECKSUM = 64  # where it is in the optional header
_DIRECTORIES = {0x10B: 96, 0x20B: 112}  # where they are in the optional header, by its magic
_SECURITY = 4  # the number of the directory that has the signatures
_REVISION, _SIGNED_DATA = 0x200, 2


def verify(file: BinaryIO, size: int, trust: TrustStore, now: datetime) -> list[Signature]:
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
        verdict
        for content in _contents(table)
        for verdict in verify_all(content, PROGRAM_DATA, lambda name, value: digest(name) == value, trust, now)
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
