"""Some packages as a search goes through them: by whole values at once, by parts of values in one text."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from catalog_service.winget.fields import CODES, SEPARATOR, folded, squeezed

SIZE = 512  # packages; twice as many become two blocks
OVERHEAD = 400  # bytes that a package takes beside its texts
LINE_OVERHEAD = 100  # bytes that a value does beside itself, to be looked up by
_CODE_MARKS = frozenset(field.mark for field in CODES)


@dataclass(frozen=True)
class Record:
    """A package that can be found.

    `texts` and `codes` are its values, each after its field's mark; of codes the letter case says nothing, and they are
    folded. `hit` is what is told of it, in JSON. `since` has for each of its versions the contract 1.x that it takes.
    """

    package_id: str
    texts: tuple[str, ...]
    codes: tuple[str, ...]
    hit: bytes
    since: tuple[int, ...]

    @property
    def size(self) -> int:
        """In bytes, with what a block keeps to find it by."""
        texts, codes = sum(map(len, self.texts)), sum(map(len, self.codes))
        lines = len(self.texts) + len(self.codes)
        return OVERHEAD + len(self.hit) + 4 * texts + 3 * codes + LINE_OVERHEAD * lines


class Lines:
    """One line after the other, and whose each is."""

    def __init__(self, of_packages: Sequence[Sequence[str]]) -> None:
        self.text = "".join(f"{line}{SEPARATOR}" for lines in of_packages for line in lines)
        self._ends = array("L", accumulate(sum(len(line) + 1 for line in lines) for lines in of_packages))

    @cached_property
    def squeezed(self) -> "Lines":
        """The same as far as values count that are only alike; made once, and only where it is asked for."""
        of_packages = (self.text[start:end].split(SEPARATOR)[:-1] for start, end in pairwise([0, *self._ends]))
        return Lines(
            [[line[0] + squeezed(line[1:]) for line in lines if line[0] not in _CODE_MARKS] for lines in of_packages]
        )

    def having(self, piece: str, marks: str = "") -> Iterator[int]:
        """The numbers of the packages that have a piece, in a line that begins with one of these marks if any."""
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

    def matching(self, pattern: re.Pattern[str]) -> Iterator[int]:
        """The numbers of the packages of which a pattern matches a line."""
        found = pattern.search(self.text)
        while found:
            number = bisect_right(self._ends, found.start())
            yield number
            found = pattern.search(self.text, self._ends[number])


class Block:
    """Packages that follow one another in the order of their ids; never changed, only replaced."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.ids = [record.package_id for record in records]
        self.size = sum(record.size for record in records)
        texts = [[folded(line) for line in record.texts] for record in records]
        self.texts = Lines(texts)
        self._numbers: dict[str, int | list[int]] = {}
        for number, record in enumerate(records):
            for line in {*texts[number], *record.codes}:
                others = self._numbers.setdefault(line, number)
                if isinstance(others, list):
                    others.append(number)
                elif others != number:
                    self._numbers[line] = [others, number]

    @cached_property
    def codes(self) -> Lines:
        """Seldom gone through, and longer than the texts: made once, and only where it is asked for."""
        return Lines([record.codes for record in self.records])

    def having(self, line: str) -> Sequence[int]:
        """The numbers of the packages that have this folded value, after its field's mark."""
        found = self._numbers.get(line, ())
        return (found,) if isinstance(found, int) else found
