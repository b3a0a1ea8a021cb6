"""The signature of MSIX and APPX packages: digests of the ZIP file, and a map with the digests of all blocks."""

import base64
import hashlib
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import BinaryIO
from urllib.parse import unquote
from xml.parsers import expat

from upload_service.inspection.signatures.authenticode import PACKAGE_DATA, verify_all
from upload_service.inspection.signatures.model import Altered, Signature, SignatureState, Unsupported
from upload_service.inspection.signatures.streams import BLOCK, block_digest, read_at
from upload_service.inspection.signatures.trust import TrustStore
from upload_service.inspection.signatures.zip_layout import Layout, Member, read_layout

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
# The parts of the signed value: the files of the ZIP, its directory, and three files.
_ELSEWHERE = {0xFFFF, 0xFFFFFFFF}
_PARTS = ("AXPC", "AXCD", "AXCT", "AXBM", "AXCI")


def verify(file: BinaryIO, size: int, trust: TrustStore, now: datetime) -> list[Signature]:
    """The verdicts about the signatures of a package, which is unsigned without any."""
    package = _Package(file, read_layout(file, size))
    if _SIGNATURE not in package.members:
        if _MAP in package.members:
            return [Signature(SignatureState.UNSIGNED)]
        raise Unsupported("Archives have no signature.")
    signature = package.content(_SIGNATURE, SIGNATURE_SIZE)
    if not signature.startswith(_MAGIC) or package.layout.members[-1].name != _SIGNATURE:
        raise Altered("The signature is malformed, or not the last file of the package.")
    package.check_blocks()
    digests = cache(package.digests)
    return verify_all(signature[len(_MAGIC) :], PACKAGE_DATA, lambda name, value: digests(name) == value, trust, now)


class _Package:
    def __init__(self, file: BinaryIO, layout: Layout) -> None:
        self._file, self.layout = file, layout
        self.members = {member.name: member for member in layout.members}

    def digests(self, name: str) -> bytes:
        """The value that is signed: the digests of the package without its signature."""
        *files, signature = self.layout.members
        digests = [
            block_digest(name, self._file, (0, signature.start)),
            hashlib.new(name, self._directory(files, signature.start)).digest(),
        ]
        parts = [_TYPES, _MAP, *({_CODE} & self.members.keys())]
        digests += [hashlib.new(name, self.content(part, MAP_SIZE)).digest() for part in parts]
        return b"APPX" + b"".join(part.encode() + one for part, one in zip(_PARTS, digests, strict=False))

    def _directory(self, files: list[Member], start: int) -> bytes:
        """The directory and the end as they would be without the signature."""
        records = b"".join(member.record for member in files)
        count, length = len(files), len(records)
        end, long_end, locator = self.layout.end, self.layout.long_end, self.layout.locator
        if long_end:
            long_end = long_end[:24] + struct.pack("<4Q", count, count, length, start) + long_end[56:]
            locator = locator[:8] + struct.pack("<Q", start + length) + locator[16:]
        values = zip(struct.unpack_from("<HHII", end, 8), (count, count, length, start), strict=True)
        kept = [old if old in _ELSEWHERE else new for old, new in values]
        return records + long_end + locator + end[:4] + bytes(4) + struct.pack("<HHII", *kept) + end[20:]

    def check_blocks(self) -> None:
        """Raise Altered unless the block map has all files of the package and the digests of all their blocks."""
        block_map = _BlockMap(self.content(_MAP, MAP_SIZE))
        unmapped = {_MAP, _TYPES, _SIGNATURE, _CODE}
        is_bundle = _BUNDLE in self.members
        for name, member in self.members.items():
            mapped = block_map.files.pop(unquote(name).replace("/", "\\"), None)
            if mapped is not None:
                self._check(member, mapped, block_map.method)
            elif name not in unmapped and not (is_bundle and _PACKAGE.fullmatch(name)):
                raise Altered("A file of the package is not in its block map.")
        if block_map.files:
            raise Altered("A file of the block map is not in the package.")

    def _check(self, member: Member, mapped: "_MappedFile", method: str) -> None:
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

    def _blocks(self, member: Member) -> Iterator[bytes]:
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

    def _pieces(self, member: Member) -> Iterator[bytes]:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS) if member.is_deflated else None
        end = member.data + member.compressed
        for at in range(member.data, end, BLOCK):
            piece = read_at(self._file, at, min(BLOCK, end - at))
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


@dataclass(frozen=True)
class _MappedFile:
    size: int
    digests: list[bytes]


class _BlockMap:
    """The block map of a package. Entities are refused, so none can expand."""

    def __init__(self, text: bytes) -> None:
        self.files: dict[str, _MappedFile] = {}
        self.method = ""
        self._digests: list[bytes] = []  # of the file that began last
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.StartDoctypeDeclHandler = _reject_doctype
        parser.StartElementHandler = self._begin
        parser.Parse(text, True)

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        match name.rpartition(" ")[2]:
            case "BlockMap" if not self.method:
                if attributes.get("HashMethod") not in _METHODS:
                    raise Altered("The block map of the package uses a digest that is not accepted.")
                self.method = _METHODS[attributes["HashMethod"]]
            case "File":
                if attributes["Name"] in self.files:
                    raise Altered("A file is in the block map twice.")
                self._digests = []
                self.files[attributes["Name"]] = _MappedFile(int(attributes["Size"]), self._digests)
            case "Block":
                self._digests.append(base64.b64decode(attributes["Hash"], validate=True))


def _reject_doctype(*_: object) -> None:
    raise Altered("The block map of the package is malformed.")
