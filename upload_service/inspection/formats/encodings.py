"""The text encodings that installers may use."""

import codecs

_UNICODE = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32-be", "ascii", "latin-1", "idna")
_WINDOWS = (437, 874, 932, 936, 949, 950, *range(1250, 1259))
ENCODINGS = {*_UNICODE, *(f"cp{page}" for page in _WINDOWS)}


def load_encodings() -> None:
    """Import the encodings. Python imports each at its first use, which a confined process cannot do."""
    for encoding in ENCODINGS:
        codecs.lookup(encoding)
