"""The names of stored files."""

import re
from pathlib import PurePath
from typing import NewType

ServerFilename = NewType("ServerFilename", str)

FONTS = (".ttf", ".otf", ".ttc", ".otc", ".fnt")
SUFFIXES = ("", ".exe", ".msi", ".msix", ".appx", ".msixbundle", ".appxbundle", ".zip", *FONTS)

_SERVER_FILENAME = re.compile(r"[0-9a-f]{32}(?:" + "|".join(re.escape(suffix) for suffix in SUFFIXES) + r")")


def parse_server_filename(text: str) -> ServerFilename | None:
    """The name if it has the form that this service gives names, else None."""
    return ServerFilename(text) if _SERVER_FILENAME.fullmatch(text) else None


def plain_name(text: str) -> str:
    """The name of one file or folder. Raises ValueError for a name that leads to another folder."""
    if text in {"", ".", ".."} or not {"/", "\\", "\0"}.isdisjoint(text):
        raise ValueError("not one plain name")
    return text


def suffix_of(file_name: str) -> str:
    """The ending of a file's name if it is an installer's, else ""."""
    suffix = PurePath(file_name).suffix.lower()
    return suffix if suffix in SUFFIXES else ""
