"""Logos: accepted and refused images, and the resulting PNG."""

import io
import struct
import zlib
from typing import Any

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from catalog_service.logos import LOGO_LIMIT, service
from catalog_service.logos.service import SLOT_TIMEOUT, WALL_TIME, LogoDecoder
from common.errors import InvalidField
from gateway.operations import OPERATIONS
from tests.support.samples.logos import progressive_jpeg
from tests.support.services.catalog import picture
from tests.support.tables import each

DECODER = LogoDecoder()
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


@pytest.fixture(autouse=True)
def long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the tests independent of the load of the machine."""
    monkeypatch.setattr(service, "WALL_TIME", 60)


async def decode(image: bytes) -> bytes:
    return await DECODER.decode("acme", "Logo", image)


def opened(image: bytes) -> Image.Image:
    return Image.open(io.BytesIO(image))


def bomb(width: int, height: int) -> bytes:
    """A PNG that declares a size and has no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


@each(
    ("kind", "mode"),
    [
        (kind, mode)
        for kind, modes in {"PNG": "1 L LA P RGB RGBA I;16", "JPEG": "L RGB CMYK"}.items()
        for mode in modes.split()
    ],
)
async def test_png_and_jpeg_of_every_mode_become_png(kind: str, mode: str) -> None:
    png = opened(await decode(picture(kind, mode=mode)))

    assert (png.format, png.size) == ("PNG", (8, 8))


@each(
    ("size", "expected"),
    [((2000, 2000), (256, 256)), ((100, 1000), (26, 256)), ((256, 128), (256, 128)), ((3000, 1), (256, 1))],
)
async def test_a_logo_is_at_most_256_pixels_wide_and_high(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert opened(await decode(picture(size=size))).size == expected


async def test_colours_and_transparency_stay() -> None:
    sent = Image.new("RGBA", (4, 4), (200, 100, 50, 0))
    sent.paste((10, 20, 30, 255), (0, 0, 2, 2))
    written = io.BytesIO()
    sent.save(written, "PNG")

    png = opened(await decode(written.getvalue())).convert("RGBA")

    assert png.getpixel((0, 0)) == (10, 20, 30, 255)
    assert png.getpixel((3, 3))[3] == 0  # type: ignore[index]  # a pixel of four bands


async def test_metadata_is_removed() -> None:
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    text = PngInfo()
    text.add_text("Comment", "taken at home")
    options: list[tuple[str, dict[str, Any]]] = [
        ("JPEG", {"exif": exif, "comment": b"taken at home", "icc_profile": b"taken at home"}),
        ("PNG", {"exif": exif, "pnginfo": text, "icc_profile": b"taken at home"}),
    ]
    for kind, metadata in options:
        png = await decode(picture(kind, **metadata) + b"taken at home")

        assert opened(png).info == {}
        assert b"taken at home" not in png


@each(
    "image",
    [
        picture("GIF"),
        picture("BMP"),
        SVG,
        b"GIF89a" + SVG,
        picture()[:40],
        picture(size=(200, 200))[:-60],
        picture("JPEG", size=(200, 200))[:-400],
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff",
        b"MZ\x90\x00",
    ],
    ids=lambda image: repr(image[:8]),
)
async def test_an_incomplete_or_other_image_is_refused(image: bytes) -> None:
    with pytest.raises(InvalidField, match=r"^Logo: is not a PNG or JPEG image"):
        await decode(image)


@each(
    "image",
    [
        bomb(2001, 2000),
        bomb(9000, 9000),
        bomb(10_000, 10_000),
        bomb(60_000, 60_000),
        picture(mode="1", size=(20_000, 20_000)),
    ],
    ids=["just too large", "below Pillow's limit", "above its warning", "above its error", "real pixels"],
)
async def test_an_image_of_too_many_pixels_is_refused(image: bytes) -> None:
    with pytest.raises(InvalidField, match=r"^Logo: has more than 4000000 pixels"):
        await decode(image)


@each(
    "image",
    [
        progressive_jpeg(64),
        picture("JPEG", progressive=True),
        picture("JPEG", comment=b"\xff\xda" * 100),
        progressive_jpeg(64) + progressive_jpeg(64),
    ],
    ids=["64 scans", "usual", "scans in a comment", "scans behind the end"],
)
async def test_a_jpeg_of_at_most_64_scans_is_decoded(image: bytes) -> None:
    assert opened(await decode(image)).format == "PNG"


@each(
    "image",
    [
        progressive_jpeg(65),
        progressive_jpeg(65, between=b"\xff\xff\xff"),
        progressive_jpeg(65, between=b"\xff\x02\x20\x00"),
        progressive_jpeg(65, between=b"\xff\xe0\x00\x01"),
        progressive_jpeg(65, between=b"\xff\xd0\xff\xd7\xff\x00"),
    ],
    ids=["plain", "fill bytes", "reserved marker", "length too small", "restarts"],
)
async def test_a_jpeg_of_more_than_64_scans_is_refused(image: bytes) -> None:
    with pytest.raises(InvalidField, match=r"^Logo: has more than 64 scans"):
        await decode(image)


async def test_a_jpeg_of_several_images_becomes_the_first() -> None:
    second = Image.new("RGB", (9, 9))
    image = io.BytesIO()
    Image.new("RGB", (8, 8)).save(image, "MPO", save_all=True, append_images=[second])

    assert opened(await decode(image.getvalue())).size == (8, 8)


@each("operation", ["add_package", "edit_package"])
def test_a_logo_is_decoded_or_refused_within_the_gateway_timeout(operation: str) -> None:
    (row,) = (row for row in OPERATIONS if row.name == operation)
    assert row.timeout > SLOT_TIMEOUT + WALL_TIME + 1


async def test_a_text_chunk_that_unpacks_without_limit_is_refused() -> None:
    grown = PngInfo()
    grown.add_text("Comment", "a" * (8 << 20), zip=True)

    with pytest.raises(InvalidField, match=r"^Logo"):
        await decode(picture(pnginfo=grown))


async def test_a_logo_of_more_than_5_mib_is_refused() -> None:
    with pytest.raises(InvalidField, match=r"^Logo: is longer than 5242880 bytes"):
        await decode(picture() + bytes(LOGO_LIMIT))
