"""The values of packages as one text, for searches of parts of values."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise

from catalog_service.winget.search.fields import CODES, SEPARATOR, squeezed

GRAM = 3  # characters
FILTER_SIZE = 16 << 10  # bytes
FILTER_THRESHOLD = 4 << 10  # characters; shorter texts need no filter
_CODE_MARKS = frozenset(field.mark for field in CODES)


# Returns the first package from a number on that matches, the number of all packages if there is none.
Finder = Callable[[int], int]


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
        sizes = (sum(len(line) + 1 for line in lines) for lines in of_packages)
        self._starts = array("L", accumulate(sizes, initial=0))  # of the packages, and the length of the text

    def may_have(self, piece: str) -> bool:
        """False only if the text lacks the piece."""
        return self.filter is None or self.filter.may_have(piece)

    @cached_property
    def squeezed(self) -> "TextIndex":
        """The index of squeezed values, for fuzzy searches."""
        of_packages = (self.text[start:end].split(SEPARATOR)[:-1] for start, end in pairwise(self._starts))
        return TextIndex(
            [[line[0] + squeezed(line[1:]) for line in lines if line[0] not in _CODE_MARKS] for lines in of_packages]
        )

    def finder(self, piece: str, marks: str = "") -> Finder:
        """Find packages with a piece; with `marks`, in a line with one of these marks."""
        text, starts, count = self.text, self._starts, len(self._starts) - 1
        if not self.may_have(piece):
            return lambda _: count

        def first(number: int) -> int:
            position = text.find(piece, starts[number])
            while position >= 0:
                if not marks or text[text.rfind(SEPARATOR, 0, position) + 1] in marks:
                    return bisect_right(starts, position) - 1
                position = text.find(piece, self._next_line(marks, position))
            return count

        return first

    def _next_line(self, marks: str, after: int) -> int:
        """Return the start of the next line with one of these marks: many lines may be between."""
        positions = [self.text.find(SEPARATOR + mark, after) for mark in marks]
        return min([position for position in positions if position >= 0], default=len(self.text))

    def pattern_finder(self, pattern: re.Pattern[str]) -> Finder:
        """Find packages with a line that matches."""
        starts, count = self._starts, len(self._starts) - 1

        def first(number: int) -> int:
            match = pattern.search(self.text, starts[number])
            return bisect_right(starts, match.start()) - 1 if match else count

        return first
