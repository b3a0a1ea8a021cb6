"""Limits of the images that are uploaded as logos."""

LOGO_LIMIT = 5 << 20  # bytes
PIXELS_LIMIT = 4_000_000
SCANS_LIMIT = 64  # of a progressive JPEG; usual ones have about ten
EDGE = 256  # pixels; a stored logo is not wider and not higher
