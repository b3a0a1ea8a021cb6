"""JPEG files with many scans."""

from tests.support.services.catalog import picture

# A progressive scan of bands 1 to 63, and the table with its only code. Each zero bit ends the bands of many blocks.
_TABLE = b"\xff\xc4\x00\x14\x10\x01" + bytes(15) + b"\xe0"
_SCAN = b"\xff\xda\x00\x08\x01\x01\x00\x01\x3f\x00" + bytes(8)


def progressive_jpeg(scans: int, edge: int = 64, *, between: bytes = b"") -> bytes:
    """A gray square of `edge` pixels; each scan is 18 bytes and costs a pass through all pixels."""
    header, _, _ = picture("JPEG", (edge, edge), "L", progressive=True).partition(b"\xff\xda")
    header = header[: header.index(b"\xff\xc4")]
    return header + _TABLE + between.join([_SCAN] * scans) + b"\xff\xd9"
