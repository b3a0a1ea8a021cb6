"""Logos of packages: their limits, and the reasons to refuse one.

`service` decodes each logo in a confined process, which runs `decoder`.
"""

from enum import IntEnum

LOGO_LIMIT = 5 << 20  # bytes
PIXELS_LIMIT = 4_000_000
SCANS_LIMIT = 64  # of a progressive JPEG; usual ones have about ten
EDGE = 256  # pixels; a stored logo is not wider and not higher


class Refusal(IntEnum):
    """The exit statuses of the decoding process."""

    NOT_AN_IMAGE = 10
    TOO_MANY_PIXELS = 11
    TOO_MANY_SCANS = 12


class LogoRefused(Exception):
    """A logo must not or cannot be decoded; its argument is the `Refusal`."""
