"""Decodes a logo and encodes its pixels again, so that nothing else of the file remains.

`python -m catalog_service.logos.decoder` decodes the logo that is the standard input. The standard output is the PNG.
Otherwise the exit status tells the reason: `Refusal`, or `OUT_OF_MEMORY`.
"""

import io
import re
import sys
import warnings

from PIL import Image, MpoImagePlugin, TiffImagePlugin  # noqa: F401  for a JPEG of several pictures

from catalog_service.logos import EDGE, PIXELS_LIMIT, SCANS_LIMIT, LogoRefused, Refusal
from common.concurrency.confinement import OUT_OF_MEMORY, confine

MEMORY = 128 << 20  # bytes; two such processes fit beside the service into the memory of its container
# In entropy-coded data FF 00 is a byte and FF D0 to FF D7 are restarts; any number of FF may precede a marker.
_MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_WITH_LENGTH = {*range(0xC0, 0xFF)} - {0xD8, _END_OF_IMAGE}

Image.preinit()  # Pillow imports its plugins at the first use, which a confined process cannot do.
warnings.simplefilter("error", Image.DecompressionBombWarning)


def decode_logo(image: bytes) -> bytes:
    """Convert a PNG or JPEG image to a PNG of at most 256 by 256 pixels without metadata.

    Raises LogoRefused for other files, and for too many pixels or scans.
    """
    try:
        return _encode(_decode(image))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise LogoRefused(Refusal.TOO_MANY_PIXELS) from None
    except (OSError, ValueError, SyntaxError):  # Pillow raises each of them for a broken image.
        raise LogoRefused(Refusal.NOT_AN_IMAGE) from None


def _decode(image: bytes) -> Image.Image:
    with Image.open(io.BytesIO(image), formats=("PNG", "JPEG")) as picture:
        # Both limits come before the first pixel is decoded.
        if picture.width * picture.height > PIXELS_LIMIT:
            raise LogoRefused(Refusal.TOO_MANY_PIXELS)
        if image.startswith(b"\xff\xd8") and _count_scans(image) > SCANS_LIMIT:
            raise LogoRefused(Refusal.TOO_MANY_SCANS)
        picture.draft("RGB", (EDGE, EDGE))  # A JPEG is decoded at a fraction of its size.
        pixels = picture.convert("RGBA")
    pixels.thumbnail((EDGE, EDGE))
    return pixels


def _encode(pixels: Image.Image) -> bytes:
    clean = Image.new("RGBA", pixels.size)  # It has no metadata.
    clean.paste(pixels)
    output = io.BytesIO()
    clean.save(output, "PNG", optimize=True)
    return output.getvalue()


def _count_scans(jpeg: bytes) -> int:
    """Count the scans that a decoder would read.

    The decoder reads each of them through all pixels, however short it is. Thumbnails and comments lie inside segments
    with a length, which are skipped.
    """
    scans, position = 0, 2
    while (marker := _MARKER.search(jpeg, position)) and marker[1][0] != _END_OF_IMAGE:
        scans += marker[1][0] == _START_OF_SCAN
        position = marker.end()
        if marker[1][0] in _WITH_LENGTH:
            position += max(2, int.from_bytes(jpeg[position : position + 2]))
    return scans


def main() -> int:
    confine(MEMORY)
    try:
        logo = decode_logo(sys.stdin.buffer.read())
    except MemoryError:
        return OUT_OF_MEMORY
    except LogoRefused as error:
        return int(error.args[0])
    sys.stdout.buffer.write(logo)
    return 0


if __name__ == "__main__":
    sys.exit(main())
