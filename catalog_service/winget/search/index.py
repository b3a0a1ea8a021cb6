"""The search index of a tenant, in segments.

Whole values are looked up, parts of values are searched in one text.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from catalog_service.catalog.reader import Rings
from catalog_service.catalog.segments import replaced_segments
from catalog_service.model.identities import folded
from catalog_service.winget.search.text_index import FILTER_SIZE, Finder, TextIndex

SIZE = 512  # packages; a segment of twice as many is split
OVERHEAD = 400  # bytes of a package beside its texts
LINE_OVERHEAD = 100  # bytes of a value beside itself


@dataclass(frozen=True)
class Record:
    """A package in the index, as some rings see it.

    `texts` and folded `codes` are its values, each after its field's mark. `result_json` is its search result. `since`
    has the first contract 1.x for each of its versions.
    """

    package_id: str
    texts: tuple[str, ...]
    codes: tuple[str, ...]
    result_json: bytes
    since: tuple[int, ...]
    rings: Rings = None

    @property
    def size(self) -> int:
        """The bytes of the record and of its share of the index."""
        texts, codes = sum(map(len, self.texts)), sum(map(len, self.codes))
        lines = len(self.texts) + len(self.codes)
        rings = 8 * len(self.rings or ())
        return OVERHEAD + rings + len(self.result_json) + 4 * texts + 3 * codes + LINE_OVERHEAD * lines


class IndexSegment:
    """Consecutive packages in the order of their ids; immutable."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.ids = [record.package_id for record in records]
        self.first_id = self.ids[0] if records else ""
        texts = [[folded(line) for line in record.texts] for record in records]
        self.texts = TextIndex(texts, filtered=True)
        self.size = sum(record.size for record in records) + (FILTER_SIZE if self.texts.filter else 0)
        self._numbers: dict[str, int | list[int]] = {}
        for number, record in enumerate(records):
            for line in {*texts[number], *record.codes}:
                others = self._numbers.setdefault(line, number)
                if isinstance(others, list):
                    others.append(number)
                elif others != number:
                    self._numbers[line] = [others, number]
        self.lines = self._numbers.keys()  # all marks with folded values

    def items(self) -> Sequence[Record]:
        return self.records

    @cached_property
    def codes(self) -> TextIndex:
        """The codes, which are built on first use because few searches need them."""
        return TextIndex([record.codes for record in self.records])

    def finder(self, line: str) -> Finder:
        """Find packages with this line: a mark and a folded value."""
        found, end = self._numbers.get(line, ()), len(self.records)
        numbers = (found,) if isinstance(found, int) else found

        def first(number: int) -> int:
            index = bisect_left(numbers, number)
            return numbers[index] if index < len(numbers) else end

        return first


@dataclass(frozen=True)
class Index:
    """The installable packages at a revision, or later, read with these rings of their tenant."""

    revision: str
    segments: Sequence[IndexSegment] = ()
    rings: Sequence[str] = ()

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(segment.size for segment in self.segments)

    def replaced(self, revision: str, changes: Mapping[str, Sequence[Record]]) -> "Index":
        """Return the index at a later revision, with the records of these packages replaced."""
        return Index(revision, replaced_segments(self.segments, changes, IndexSegment, SIZE), self.rings)
