"""Values of packages as one text, gone through for parts of values."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise

from catalog_service.winget.search.fields import CODES, SEPARATOR, squeezed

GRAM = 3  # characters
FILTER_SIZE = 16 << 10  # bytes
FILTER_THRESHOLD = 4 << 10  # characters of a text, from which on a sieve is worth its bytes
_CODE_MARKS = frozenset(field.mark for field in CODES)


class TrigramFilter:
    """Tells of most pieces that a text lacks that it does, and goes through none of it."""

    def __init__(self, text: str) -> None:
        self._has = bytearray(FILTER_SIZE)
        for place in _places(text):
            self._has[place] = True

    def may_have(self, piece: str) -> bool:
        """False only where the text lacks the piece."""
        return all(map(self._has.__getitem__, _places_of_piece(piece)))


def _places(text: str) -> Collection[int]:
    """Where a sieve has every part of a text that is `GRAM` characters long; nowhere in what is shorter."""
    return [hash(part) % FILTER_SIZE for part in {text[start : start + GRAM] for start in range(len(text) - GRAM + 1)}]


_places_of_piece = lru_cache(_places)  # The same piece is looked for in all blocks.


class TextIndex:
    """One line after the other, and whose each is."""

    def __init__(self, of_packages: Sequence[Sequence[str]], *, sieved: bool = False) -> None:
        """`sieved` is for what is gone through often: it takes longer to make, and `FILTER_SIZE` bytes where it is long."""
        self.text = "".join(f"{line}{SEPARATOR}" for lines in of_packages for line in lines)
        self.filter = TrigramFilter(self.text) if sieved and len(self.text) >= FILTER_THRESHOLD else None
        self._ends = array("L", accumulate(sum(len(line) + 1 for line in lines) for lines in of_packages))

    @cached_property
    def squeezed(self) -> "TextIndex":
        """The same as far as values count that are only alike; made once, and only where it is asked for."""
        of_packages = (self.text[start:end].split(SEPARATOR)[:-1] for start, end in pairwise([0, *self._ends]))
        return TextIndex(
            [[line[0] + squeezed(line[1:]) for line in lines if line[0] not in _CODE_MARKS] for lines in of_packages]
        )

    def find(self, piece: str, marks: str = "") -> Iterator[int]:
        """The numbers of the packages that have a piece, in a line that begins with one of these marks if any."""
        if self.filter and not self.filter.may_have(piece):
            return
        place = self.text.find(piece)
        while place >= 0:
            line = self.text.rfind(SEPARATOR, 0, place) + 1
            if not marks or self.text[line] in marks:
                number = bisect_right(self._ends, place)
                yield number
                following = self._ends[number]
            else:
                following = self._beginning(marks, place)
            place = self.text.find(piece, following)

    def _beginning(self, marks: str, after: int) -> int:
        """Where the next line begins that has one of these marks: the lines between may be very many."""
        places = (self.text.find(SEPARATOR + mark, after) for mark in marks)
        return min((place for place in places if place >= 0), default=len(self.text))

    def find_matches(self, pattern: re.Pattern[str]) -> Iterator[int]:
        """The numbers of the packages of which a pattern matches a line."""
        found = pattern.search(self.text)
        while found:
            number = bisect_right(self._ends, found.start())
            yield number
            found = pattern.search(self.text, self._ends[number])
