"""Windows Installer databases: OLE files whose streams are tables. The table `Property` describes the product."""

import codecs
import struct
from collections.abc import Iterator
from typing import BinaryIO

import olefile

from upload_service.inspection.formats.executables import signer_of
from upload_service.inspection.model import Findings, Format, Machine, Reach, clean_text, normalize_guid

STREAM_LIMIT = 16 << 20  # bytes
ROWS_LIMIT = 10_000
SUMMARY_LIMIT = 100  # properties

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._"
# The name of a stream: one CJK character encodes two characters of six bits each, low bits first, or one.
_PAIRS = {0x3800 + bits: _DIGITS[bits & 0x3F] + _DIGITS[bits >> 6] for bits in range(0x1000)}
_LETTERS = {**_PAIRS, **{0x4800 + bits: digit for bits, digit in enumerate(_DIGITS)}}
_TABLE = "\u4840"  # begins the name of a stream that is a table
_LONG_REFERENCES = 0x8000  # Strings have numbers of three bytes.
_SUMMARY = "\x05SummaryInformation"
_SIGNATURE = "\x05DigitalSignature"
_TEMPLATE, _APPLICATION, _VT_LPSTR = 7, 18, 30  # properties of the summary, and the type of a text
_MACHINES = {"intel": Machine.X86, "x64": Machine.X64, "amd64": Machine.X64, "arm": Machine.ARM, "arm64": Machine.ARM64}
_WIX = ("windows installer xml", "wix toolset")

_UNICODE = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32-be", "ascii", "latin-1", "idna")
_WINDOWS = (437, 874, 932, 936, 949, 950, *range(1250, 1259))
ENCODINGS = {*_UNICODE, *(f"cp{page}" for page in _WINDOWS)}  # that any installer may use


def load_encodings() -> None:
    """Import the encodings. Python imports each at its first use, which a confined process cannot do."""
    for encoding in ENCODINGS:
        codecs.lookup(encoding)


def read(file: BinaryIO) -> Findings:
    """Inspect a database. Any other file raises one of many errors of olefile and struct."""
    with olefile.OleFileIO(file) as ole:
        streams = {name.translate(_LETTERS): name for (name, *more) in ole.listdir() if not more}
        if f"{_TABLE}Property" not in streams:
            return Findings()  # A document is an OLE file as well.
        properties = dict(_properties(ole, streams))
        platform, application = _summary(ole)
        signature = _content(ole, _SIGNATURE) if ole.exists(_SIGNATURE) else b""
    return Findings(
        format=Format.WIX if application.startswith(_WIX) else Format.MSI,
        machine=_MACHINES.get(platform, Machine.UNKNOWN),
        reach=_reach(properties),
        version=clean_text(properties.get("ProductVersion", "")),
        product_name=clean_text(properties.get("ProductName", "")),
        publisher=clean_text(properties.get("Manufacturer", "")),
        product_code=normalize_guid(properties.get("ProductCode", "")),
        upgrade_code=normalize_guid(properties.get("UpgradeCode", "")),
        signer=signer_of(signature),
    )


def _reach(properties: dict[str, str]) -> Reach:
    """Without ALLUSERS the scope is the user, with 1 the machine; with 2 it depends."""
    return {"": Reach.USER, "1": Reach.MACHINE}.get(properties.get("ALLUSERS", ""), Reach.UNKNOWN)


def _content(ole: olefile.OleFileIO, name: str) -> bytes:
    if ole.get_size(name) > STREAM_LIMIT:
        raise ValueError("stream too long")
    content: bytes = ole.openstream(name).read()
    return content


def _properties(ole: olefile.OleFileIO, streams: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The names and values; the table has the column of names first, and each value is the number of a string."""
    names = (f"{_TABLE}{name}" for name in ("_StringPool", "_StringData", "Property"))
    pool, data, table = (_content(ole, streams[name]) for name in names)
    codepage, flags = struct.unpack_from("<HH", pool)
    width = 3 if flags & _LONG_REFERENCES else 2
    rows = len(table) // (2 * width)
    if rows > ROWS_LIMIT:
        raise ValueError("too many properties")
    numbers = [int.from_bytes(table[at : at + width], "little") for at in range(0, 2 * rows * width, width)]
    texts = _strings(pool, data, set(numbers), _encoding(codepage))
    for name, value in zip(numbers[:rows], numbers[rows:], strict=True):
        yield texts.get(name, ""), texts.get(value, "")


def _strings(pool: bytes, data: bytes, numbers: set[int], encoding: str) -> dict[int, str]:
    """The strings with these numbers. The pool has four bytes for each string: its length, and the count of its uses.

    A string with uses and no length is longer than 64 KiB: the next four bytes are its length.
    """
    texts: dict[int, str] = {}
    entries = struct.iter_unpack("<HH", pool[4 : len(pool) // 4 * 4])
    at = 0
    for number, (length, uses) in enumerate(entries, start=1):
        size = length
        if not length and uses:
            low, high = next(entries, (0, 0))
            size = high << 16 | low
        if number in numbers:
            texts[number] = data[at : at + size].decode(encoding, "replace")
        at += size
    return texts


def _encoding(codepage: int) -> str:
    if codepage == 65001:
        return "utf-8"
    return f"cp{codepage}" if f"cp{codepage}" in ENCODINGS else "cp1252"


def _summary(ole: olefile.OleFileIO) -> tuple[str, str]:
    """The platform of a database and the tool that made it, in small letters.

    Not read by olefile, which reads as many properties as the stream claims; that may be four billion.
    """
    if not ole.exists(_SUMMARY):
        return "", ""
    content = _content(ole, _SUMMARY)
    (section,) = struct.unpack_from("<I", content, 44)
    (count,) = struct.unpack_from("<I", content, section + 4)
    offsets = struct.iter_unpack("<II", content[section + 8 : section + 8 + 8 * min(count, SUMMARY_LIMIT)])
    texts = {number: _text(content, section + at) for number, at in offsets if number in {_TEMPLATE, _APPLICATION}}
    template = texts.get(_TEMPLATE, "").partition(";")[0].split(",")[0]
    return template.strip().lower(), texts.get(_APPLICATION, "").strip().lower()


def _text(content: bytes, at: int) -> str:
    kind, length = struct.unpack_from("<II", content, at)
    return content[at + 8 : at + 8 + length].rstrip(b"\0").decode("latin-1") if kind == _VT_LPSTR else ""
