"""Reading of files, and their digests, in blocks."""

import hashlib
from typing import BinaryIO

from asn1crypto import parser

from upload_service.inspection.signatures.model import Altered

BLOCK = 1 << 20  # bytes
PADDING_LIMIT = 8  # bytes


def read_at(file: BinaryIO, start: int, length: int) -> bytes:
    """The `length` bytes from `start` on. Raises EOFError if the file has fewer."""
    file.seek(start)
    content = file.read(length)
    if len(content) != length:
        raise EOFError
    return content


def block_digest(name: str, file: BinaryIO, *ranges: tuple[int, int]) -> bytes:
    """The digest of ranges of a file, each a start and an end."""
    digest = hashlib.new(name)
    for start, end in ranges:
        for at in range(start, end, BLOCK):
            digest.update(read_at(file, at, min(BLOCK, end - at)))
    return digest.digest()


def without_padding(content: bytes) -> bytes:
    """A DER value without the zeros after it. Raises Altered if anything else is after it."""
    end = parser.peek(content)
    if len(content) - end >= PADDING_LIMIT or content[end:].strip(b"\0"):
        raise Altered("The signature has data that is not part of it.")
    return content[:end]
