"""Orders versions by their numeric parts, as winget does."""

import re
from collections.abc import Iterable
from functools import total_ordering
from itertools import zip_longest
from typing import TypeVar

from catalog_service.model.versions import PackageVersion, VersionName

_PREAMBLE = re.compile(r"[^0-9]*(?=[0-9])")
_PART = re.compile(r"([0-9]*)(.*)", re.DOTALL)

# A number, whether it stands alone (1.0 is newer than 1.0-beta), and what follows it.
_Part = tuple[int, bool, str]
_ZERO: _Part = (0, True, "")


AnyVersion = TypeVar("AnyVersion", bound=VersionName | PackageVersion)


@total_ordering
class VersionOrder:
    """A version string that compares with others: the newer one is greater.

    Missing parts count as 0, so `1.2` and `1.2.0` are equal. Text before the first digit does not count, as in `v1.2`.
    """

    __slots__ = ("_parts",)

    def __init__(self, version: str) -> None:
        self._parts = [_part(text) for text in _PREAMBLE.sub("", version, count=1).split(".")]
        while self._parts[-1:] == [_ZERO]:
            self._parts.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VersionOrder) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(tuple(self._parts))

    def __lt__(self, other: "VersionOrder") -> bool:
        for mine, others in zip_longest(self._parts, other._parts, fillvalue=_ZERO):
            if mine != others:
                return mine < others
        return False


def newest_first(versions: Iterable[AnyVersion]) -> list[AnyVersion]:
    """Return the newest first, independent of the input's order."""
    return sorted(versions, key=lambda each: (VersionOrder(each.version), each.version, each.uid), reverse=True)


def _part(text: str) -> _Part:
    match = _PART.fullmatch(text.strip())
    assert match is not None  # noqa: S101  the pattern takes every text
    digits, rest = match.groups()
    return int(digits or 0), not rest, rest.casefold()
