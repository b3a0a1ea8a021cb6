"""The values of packages as one text, for searches of parts of values."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise

from catalog_service.winget.search.fields import CODES, SEPARATOR, squeezed

GRAM = 3  # characters
FILTER_SIZE = 16 << 10  # bytes
FILTER_THRESHOLD = 4 << 10  # characters; shorter texts need no filter
_CODE_MARKS = frozenset(field.mark for field in CODES)


class TrigramFilter:
    """Excludes most pieces that a text lacks, without searching the text."""

    def __init__(self, text: str) -> None:
        self._has = bytearray(FILTER_SIZE)
        for position in _positions(text):
            self._has[position] = True

    def may_have(self, piece: str) -> bool:
        """False only if the text lacks the piece."""
        return all(map(self._has.__getitem__, _positions_of_piece(piece)))


def _positions(text: str) -> Collection[int]:
    """Return the filter positions of all parts of `GRAM` characters; none for shorter texts."""
    return [hash(part) % FILTER_SIZE for part in {text[start : start + GRAM] for start in range(len(text) - GRAM + 1)}]


_positions_of_piece = lru_cache(_positions)  # All segments are searched for the same piece.


class TextIndex:
    """The lines of packages in one text."""

    def __init__(self, of_packages: Sequence[Sequence[str]], *, filtered: bool = False) -> None:
        """`filtered` speeds up frequent searches, and takes `FILTER_SIZE` bytes for a long text."""
        self.text = "".join(f"{line}{SEPARATOR}" for lines in of_packages for line in lines)
        self.filter = TrigramFilter(self.text) if filtered and len(self.text) >= FILTER_THRESHOLD else None
        self._ends = array("L", accumulate(sum(len(line) + 1 for line in lines) for lines in of_packages))

    @cached_property
    def squeezed(self) -> "TextIndex":
        """The index of squeezed values, for fuzzy searches."""
        of_packages = (self.text[start:end].split(SEPARATOR)[:-1] for start, end in pairwise([0, *self._ends]))
        return TextIndex(
            [[line[0] + squeezed(line[1:]) for line in lines if line[0] not in _CODE_MARKS] for lines in of_packages]
        )

    def find(self, piece: str, marks: str = "") -> Iterator[int]:
        """Yield the numbers of the packages that have a piece, in a line with one of these marks if given."""
        if self.filter and not self.filter.may_have(piece):
            return
        position = self.text.find(piece)
        while position >= 0:
            line = self.text.rfind(SEPARATOR, 0, position) + 1
            if not marks or self.text[line] in marks:
                number = bisect_right(self._ends, position)
                yield number
                following = self._ends[number]
            else:
                following = self._next_line(marks, position)
            position = self.text.find(piece, following)

    def _next_line(self, marks: str, after: int) -> int:
        """Return the start of the next line with one of these marks: many lines may be between."""
        positions = (self.text.find(SEPARATOR + mark, after) for mark in marks)
        return min((position for position in positions if position >= 0), default=len(self.text))

    def find_matches(self, pattern: re.Pattern[str]) -> Iterator[int]:
        """Yield the numbers of the packages with a line that matches."""
        match = pattern.search(self.text)
        while match:
            number = bisect_right(self._ends, match.start())
            yield number
            match = pattern.search(self.text, self._ends[number])
