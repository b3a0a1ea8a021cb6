"""Builds small Windows programs and packages for tests of the inspection."""

import struct
from collections.abc import Mapping, Sequence
from io import BytesIO
from uuid import UUID
from zipfile import ZIP_DEFLATED, ZipFile

X86, X64, ARM64 = 0x14C, 0x8664, 0xAA64
RCDATA, VERSION, MANIFEST = 10, 16, 24
BUNDLE = UUID("8d3f2a1c-5b6e-4c7d-9a0b-1c2d3e4f5a6b")
INNO_TABLE = b"rDlPtS\xcd\xe6\xd7\x7b\x0b\x2a" + bytes(32)
NULLSOFT_HEADER = struct.pack("<II", 0, 0xDEADBEEF) + b"NullsoftInst" + bytes(8)
BURN_DATA = struct.pack("<II", 0x00F14300, 2) + BUNDLE.bytes_le + bytes(24)
_ALIGNMENT = 0x200
_SECTION_SIZE = 0x1000  # in memory, also the address of the first section


def program(
    machine: int = X64,
    *,
    sections: Sequence[tuple[bytes, bytes]] = (),
    resources: Mapping[tuple[int, int], bytes] | None = None,
    overlay: bytes = b"",
    signature: bytes = b"",
    characteristics: int = 0x22,
    section_count: int | None = None,
) -> bytes:
    """A program with these sections, an `overlay` and a PKCS #7 signature at the end of the file."""
    parts = (
        [*sections, (b".rsrc", _resources(resources, _SECTION_SIZE * (len(sections) + 1)))]
        if resources
        else [*sections]
    )
    start = _align(64 + 24 + 240 + 40 * len(parts))
    table, content = b"", b""
    for number, (name, data) in enumerate(parts):
        at, size = start + len(content), _align(len(data))
        table += struct.pack(
            "<8sIIIIIIHHI", name, len(data), _SECTION_SIZE * (number + 1), size, at, 0, 0, 0, 0, 0x40000040
        )
        content += data.ljust(size, b"\0")
    directories = [(0, 0)] * 16
    if resources:
        directories[2] = (_SECTION_SIZE * len(parts), len(parts[-1][1]))
    if signature:
        directories[4] = (start + len(content) + len(overlay), len(signature) + 8)
        overlay += struct.pack("<IHH", len(signature) + 8, 0x0200, 2) + signature
    optional = struct.pack("<HBB9I", 0x20B, 14, 0, 0, 0, 0, _SECTION_SIZE, 0, 0x400000, 0, _SECTION_SIZE, _ALIGNMENT)
    size = _SECTION_SIZE * (len(parts) + 1)
    optional += struct.pack("<6H4I2H4Q2I", 6, 0, 0, 0, 6, 0, 0, size, start, 0, 3, 0, *[0] * 4, 0, 16)
    optional += b"".join(struct.pack("<II", *directory) for directory in directories)
    count = len(parts) if section_count is None else section_count
    head = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64) + b"PE\0\0"
    head += struct.pack("<HHIIIHH", machine, count, 0, 0, 0, len(optional), characteristics)
    return (head + optional + table).ljust(start, b"\0") + content + overlay


def version_resource(**texts: str) -> bytes:
    """A VS_VERSION_INFO with these strings."""
    strings = b"".join(_block(name, f"{text}\0".encode("utf-16-le"), len(text) + 1) for name, text in texts.items())
    table = _block("040904b0", b"", 0, strings)
    fixed = struct.pack("<13I", 0xFEEF04BD, 0x10000, *[0] * 11)
    return _block("VS_VERSION_INFO", fixed, len(fixed), _block("StringFileInfo", b"", 0, table))


def archive(**files: bytes | str) -> bytes:
    """A ZIP file. `__` in a name stands for `/`, and `_` for `.`."""
    return make_zip({name.replace("__", "/").replace("_", "."): content for name, content in files.items()})


def make_zip(files: Mapping[str, bytes | str]) -> bytes:
    """A ZIP file with these files."""
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as writer:
        for name, content in files.items():
            writer.writestr(name, content)
    return file.getvalue()


def _block(name: str, value: bytes, length: int, children: bytes = b"") -> bytes:
    """A block of a version resource. Its parts are aligned to four bytes."""
    head = f"{name}\0".encode("utf-16-le")
    head = head.ljust(-(-(6 + len(head)) // 4) * 4 - 6, b"\0")
    value = value.ljust(-(-len(value) // 4) * 4, b"\0")
    size = 6 + len(head) + len(value) + len(children)
    return struct.pack("<HHH", size, length, 1 if length and children == b"" else 0) + head + value + children


def _resources(resources: Mapping[tuple[int, int], bytes], address: int) -> bytes:
    """A resource section: directories by kind, number and language."""
    count = len(resources)
    directories = 16 + 8 * count + count * 2 * 24
    entries, tables, leaves, content = b"", b"", b"", b""
    for number, ((kind, name), data) in enumerate(resources.items()):
        table = 16 + 8 * count + 48 * number
        entries += struct.pack("<II", kind, 0x80000000 | table)
        tables += struct.pack("<IIHHHH", 0, 0, 0, 0, 0, 1) + struct.pack("<II", name, 0x80000000 | table + 24)
        tables += struct.pack("<IIHHHH", 0, 0, 0, 0, 0, 1) + struct.pack("<II", 1033, directories + 16 * number)
        leaves += struct.pack("<IIII", address + directories + 16 * count + len(content), len(data), 0, 0)
        content += data.ljust(-(-len(data) // 4) * 4, b"\0")
    return struct.pack("<IIHHHH", 0, 0, 0, 0, 0, count) + entries + tables + leaves + content


def _align(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
