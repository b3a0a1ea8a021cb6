"""Some packages as a search goes through them: by whole values at once, by parts of values in one text."""

import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from catalog_service.winget.fields import SEPARATOR, Field, folded

SIZE = 512  # packages; twice as many become two blocks
OVERHEAD = 600  # bytes that a package takes beside its texts
LINE_OVERHEAD = 250  # bytes that a value does, in its own spelling, folded, and where it is looked up


@dataclass(frozen=True)
class Record:
    """A package that can be found: `lines` are its values, each after its field's mark; `text` is its hit, in JSON.

    `since` has for each of its versions the contract 1.x that it takes to install it.
    """

    package_id: str
    lines: tuple[str, ...]
    text: bytes
    since: tuple[int, ...]


class Block:
    """Packages that follow one another in the order of their ids; never changed, only replaced."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.ids = [record.package_id for record in records]
        self._numbers: dict[str, list[int]] = defaultdict(list)
        # Where each package ends in the text, and by its lines.
        self._ends, self._last_lines = array("L"), array("L")
        written: list[str] = []
        length = 0
        for number, record in enumerate(records):
            for line in record.lines:
                plain = folded(line)
                self._numbers[plain].append(number)
                written.append(plain)
                length += len(plain) + 1
            self._ends.append(length)
            self._last_lines.append(len(written))
        self.text = "".join(f"{line}{SEPARATOR}" for line in written)
        self.size = sum(
            len(record.text) + OVERHEAD + sum(3 * len(line) + LINE_OVERHEAD for line in record.lines)
            for record in records
        )

    def having(self, field: Field, value: str) -> Sequence[int]:
        """The numbers of the packages of which a field has this folded value."""
        return self._numbers.get(field.mark + value, ())

    def places(self, piece: str, marks: str = "") -> Iterator[int]:
        """The numbers of the packages that have a piece, in a line that begins with one of these marks if any."""
        place = self.text.find(piece)
        while place >= 0:
            line = self.text.rfind(SEPARATOR, 0, place) + 1
            if not marks or self.text[line] in marks:
                number = bisect_right(self._ends, place)
                yield number
                next_place = self._ends[number]
            else:
                next_place = self.text.find(SEPARATOR, place) + 1
            place = self.text.find(piece, next_place)

    def matching(self, pattern: re.Pattern[str]) -> Iterator[int]:
        """The numbers of the packages of which a pattern matches a line."""
        found = pattern.search(self.text)
        while found:
            number = bisect_right(self._ends, found.start())
            yield number
            found = pattern.search(self.text, self._ends[number])

    def owner(self, line: int) -> int:
        """The number of the package that has the line of this number."""
        return bisect_right(self._last_lines, line)
