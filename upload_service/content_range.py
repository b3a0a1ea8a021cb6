"""The two headers of a chunk and the names of stored files, parsed strictly into valid values."""

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import NewType, Self

from common.errors import InvalidRequest

FileId = NewType("FileId", str)
ServerFilename = NewType("ServerFilename", str)

MAX_TOTAL = 2**40  # bytes of one installer
FONTS = (".ttf", ".otf", ".ttc", ".otc", ".fnt")
SUFFIXES = ("", ".exe", ".msi", ".msix", ".appx", ".msixbundle", ".appxbundle", ".zip", *FONTS)

_FILE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~+=@-]{0,127}")
_RANGE = re.compile(r"bytes ([0-9]{1,13})-([0-9]{1,13})/([0-9]{1,13})")
_SERVER_FILENAME = re.compile(r"[0-9a-f]{32}(?:" + "|".join(re.escape(suffix) for suffix in SUFFIXES) + r")")


def parse_file_id(values: list[str]) -> FileId:
    """Parse X-File-ID: a letter or digit, then at most 127 of `A-Za-z0-9._~+=@-` (section 4.5).

    Raises InvalidRequest, also for a header that is missing or sent twice.
    """
    if not values:
        raise InvalidRequest("The header X-File-ID is missing.")
    if len(values) > 1:
        raise InvalidRequest("The header X-File-ID was sent more than once.")
    if not _FILE_ID.fullmatch(values[0]):
        raise InvalidRequest(
            "X-File-ID must be 1 to 128 characters of A-Z a-z 0-9 . _ ~ + = @ - and begin with a letter or digit."
        )
    return FileId(values[0])


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


@dataclass(frozen=True)
class ContentRange:
    """The bytes `start` to `end`, inclusive, of a file of `total` bytes: 0 <= start <= end < total <= 1 TiB."""

    start: int
    end: int
    total: int

    @property
    def length(self) -> int:
        return self.end - self.start + 1

    @property
    def is_last(self) -> bool:
        return self.end + 1 == self.total

    @classmethod
    def parse(cls, values: list[str]) -> Self:
        """Parse Content-Range: `bytes <start>-<end>/<total>` (section 4.5).

        Raises InvalidRequest, also for a header that is missing or sent twice.
        """
        if not values:
            raise InvalidRequest("The header Content-Range is missing.")
        if len(values) > 1:
            raise InvalidRequest("The header Content-Range was sent more than once.")
        match = _RANGE.fullmatch(values[0])
        if match is None:
            raise InvalidRequest("Content-Range must be: bytes <start>-<end>/<total>.")
        start, end, total = (int(number) for number in match.groups())
        if not start <= end < total:
            raise InvalidRequest("Content-Range must lie inside the file: start <= end < total.")
        if total > MAX_TOTAL:
            raise InvalidRequest(f"Content-Range: a file may have at most {MAX_TOTAL} bytes.")
        return cls(start, end, total)
