"""Encodings of the catalog. Compressed parts are joined without compressing them again.

A joined gzip body is one member, with uncompressed DEFLATE blocks between the parts. A joined zstd body is a row of
frames; older decoders stop after the first, so only clients that prefer zstd to gzip get it.
"""

import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isal import isal_zlib

from common.http.zero_copy.sources import Block

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_LEVEL = 1  # Logos are compressed already, so higher levels gain nothing.
_RAW_DEFLATE = -15
_STORED_LIMIT = 0xFFFF  # bytes in one DEFLATE block that is not compressed
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW_BLOCK = 128 << 10  # bytes in one zstd block
_RAW_FRAME = 8 * _RAW_BLOCK  # bytes in one uncompressed frame; readers need a window of this size


@dataclass(frozen=True)
class Part:
    """A part of a body in an encoding; `length` and `crc` are those of the decoded text."""

    blocks: Sequence[Block]
    length: int
    crc: int = 0


class Encoding:
    """JSON without an encoding, and the base of the encodings. They create parts, and join them to a JSON array."""

    name = ""

    def pack(self, text: bytes) -> Part:
        """Compress a text for the cache."""
        return Part([text], len(text))

    def wrap(self, text: bytes) -> Part:
        """Wrap a text without compression, for one response."""
        return Part([text], len(text))

    def joined(self, parts: Sequence[Part]) -> list[Block]:
        return _blocks(_listed(parts, *map(self.wrap, (b"[", b",", b"]"))))


class Gzip(Encoding):
    """RFC 1952."""

    name = "gzip"

    def pack(self, text: bytes) -> Part:
        packer = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _RAW_DEFLATE)
        # The flush ends at a whole byte without a last block, because more parts may follow.
        data = packer.compress(text) + packer.flush(isal_zlib.Z_SYNC_FLUSH)
        return Part([data], len(text), isal_zlib.crc32(text))

    def wrap(self, text: bytes) -> Part:
        return self._stored(text, last=False)

    def joined(self, parts: Sequence[Part]) -> list[Block]:
        listed = _listed(parts, self.wrap(b"["), self.wrap(b","), self._stored(b"]", last=True))
        length = crc = 0
        for part in listed:
            crc = isal_zlib.crc32_combine(crc, part.crc, part.length)
            length += part.length
        return [_GZIP_HEAD, *_blocks(listed), struct.pack("<II", crc, length & 0xFFFFFFFF)]

    @staticmethod
    def _stored(text: bytes, *, last: bool) -> Part:
        blocks = []
        for start in range(0, len(text), _STORED_LIMIT):
            block = text[start : start + _STORED_LIMIT]
            blocks += [struct.pack("<BHH", last, len(block), len(block) ^ 0xFFFF), block]
        return Part([b"".join(blocks)], len(text), isal_zlib.crc32(text))


class Zstd(Encoding):
    """RFC 8878; windows stay under the 8 MiB that RFC 9659 allows."""

    name = "zstd"

    def pack(self, text: bytes) -> Part:
        return Part([zstd.compress(text, level=_LEVEL)], len(text))

    def wrap(self, text: bytes) -> Part:
        pieces = []
        for start in range(0, len(text), _RAW_FRAME):
            frame = text[start : start + _RAW_FRAME]
            pieces.append(struct.pack("<IBI", 0xFD2FB528, 0xA0, len(frame)))  # one segment, its size in four bytes
            for first in range(0, len(frame), _RAW_BLOCK):
                block = frame[first : first + _RAW_BLOCK]
                last = first + _RAW_BLOCK >= len(frame)
                pieces += [(len(block) << 3 | last).to_bytes(3, "little"), block]
        return Part([b"".join(pieces)], len(text))


PLAIN = Encoding()
ENCODINGS: Mapping[str, Encoding] = {encoding.name: encoding for encoding in (PLAIN, Gzip(), Zstd())}


def _listed(parts: Sequence[Part], opening: Part, comma: Part, closing: Part) -> list[Part]:
    listed = [opening]
    for part in parts:
        listed += [part, comma]
    if parts:
        listed.pop()
    return [*listed, closing]


def _blocks(parts: Sequence[Part]) -> list[Block]:
    return [block for part in parts for block in part.blocks]
