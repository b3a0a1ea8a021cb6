"""The two headers of a chunk, parsed strictly into valid values."""

import re
from dataclasses import dataclass
from typing import NewType, Self

from common.errors import InvalidRequest

FileId = NewType("FileId", str)

MAX_TOTAL = 2**40  # bytes of one installer

_FILE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~+=@-]{0,127}")
_RANGE = re.compile(r"bytes ([0-9]{1,13})-([0-9]{1,13})/([0-9]{1,13})")


def parse_file_id(values: list[str]) -> FileId:
    """Parse X-File-ID: a letter or digit, then at most 127 of `A-Za-z0-9._~+=@-`.

    Raises InvalidRequest, also for a header that is missing or sent twice.
    """
    file_id = _single("X-File-ID", values)
    if not _FILE_ID.fullmatch(file_id):
        raise InvalidRequest(
            "X-File-ID must be 1 to 128 characters of A-Z a-z 0-9 . _ ~ + = @ - and begin with a letter or digit."
        )
    return FileId(file_id)


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
        """Parse Content-Range: `bytes <start>-<end>/<total>`.

        Raises InvalidRequest, also for a header that is missing or sent twice.
        """
        match = _RANGE.fullmatch(_single("Content-Range", values))
        if match is None:
            raise InvalidRequest("Content-Range must be: bytes <start>-<end>/<total>.")
        start, end, total = (int(number) for number in match.groups())
        if not start <= end < total:
            raise InvalidRequest("Content-Range must lie inside the file: start <= end < total.")
        if total > MAX_TOTAL:
            raise InvalidRequest(f"Content-Range: a file may have at most {MAX_TOTAL} bytes.")
        return cls(start, end, total)


def _single(header: str, values: list[str]) -> str:
    if not values:
        raise InvalidRequest(f"The header {header} is missing.")
    if len(values) > 1:
        raise InvalidRequest(f"The header {header} was sent more than once.")
    return values[0]
