"""Logos: decoded, bounded and drawn anew, so that nothing of the file sent is passed on (decision 19)."""

import asyncio
import io
import warnings

from PIL import Image

from common.errors import InvalidField

LOGO_LIMIT = 5 << 20  # bytes
PIXELS_LIMIT = 16_000_000
EDGE = 256  # pixels

warnings.simplefilter("error", Image.DecompressionBombWarning)  # An image that Pillow warns of is refused.


async def read_logo(field: str, image: bytes) -> bytes:
    """The image as a PNG of at most 256 by 256 pixels without metadata.

    Raises:
        InvalidField: it is not a PNG or JPEG image, cannot be decoded, or is larger than 5 MiB or 16 million pixels.
    """
    if len(image) > LOGO_LIMIT:
        raise InvalidField(field, f"is longer than {LOGO_LIMIT} bytes")
    try:
        return await asyncio.to_thread(_draw, image)
    except (_TooManyPixels, Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise InvalidField(field, f"has more than {PIXELS_LIMIT} pixels") from None
    except (OSError, ValueError, SyntaxError):  # Pillow tells of a broken image in any of these ways.
        raise InvalidField(field, "is not a PNG or JPEG image") from None


class _TooManyPixels(Exception):
    pass


def _draw(image: bytes) -> bytes:
    with Image.open(io.BytesIO(image), formats=("PNG", "JPEG")) as picture:
        if picture.width * picture.height > PIXELS_LIMIT:  # before a pixel of it is in memory
            raise _TooManyPixels
        picture.draft("RGB", (EDGE, EDGE))  # a JPEG is decoded at a fraction of its size
        drawn = picture.convert("RGBA")
    drawn.thumbnail((EDGE, EDGE))
    clean = Image.new("RGBA", drawn.size)
    clean.paste(drawn)
    written = io.BytesIO()
    clean.save(written, "PNG", optimize=True)
    return written.getvalue()
