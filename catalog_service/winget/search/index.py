"""The search index of a tenant, in segments.

Whole values are looked up, parts of values are searched in one text.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from catalog_service.winget.search.fields import folded
from catalog_service.winget.search.text_index import FILTER_SIZE, TextIndex

SIZE = 512  # packages; a segment of twice as many is split
OVERHEAD = 400  # bytes of a package beside its texts
LINE_OVERHEAD = 100  # bytes of a value beside itself


@dataclass(frozen=True)
class Record:
    """A package in the index.

    `texts` and folded `codes` are its values, each after its field's mark. `hit` is its search result in JSON. `since`
    has the first contract 1.x for each of its versions.
    """

    package_id: str
    texts: tuple[str, ...]
    codes: tuple[str, ...]
    hit: bytes
    since: tuple[int, ...]

    @property
    def size(self) -> int:
        """The bytes of the record and of its share of the index."""
        texts, codes = sum(map(len, self.texts)), sum(map(len, self.codes))
        lines = len(self.texts) + len(self.codes)
        return OVERHEAD + len(self.hit) + 4 * texts + 3 * codes + LINE_OVERHEAD * lines


class IndexSegment:
    """Consecutive packages in the order of their ids; immutable."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.ids = [record.package_id for record in records]
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

    @cached_property
    def codes(self) -> TextIndex:
        """The codes, which are built on first use because few searches need them."""
        return TextIndex([record.codes for record in self.records])

    def numbers_of(self, line: str) -> Sequence[int]:
        """Return the numbers of the packages with this line: a mark and a folded value."""
        numbers = self._numbers.get(line, ())
        return (numbers,) if isinstance(numbers, int) else numbers


@dataclass(frozen=True)
class Index:
    """The installable packages at a revision, or later."""

    revision: str
    blocks: Sequence[IndexSegment] = ()

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(block.size for block in self.blocks)

    def replaced(self, revision: str, changes: Mapping[str, Record | None]) -> "Index":
        """Return the index at a later revision, with these packages replaced, or removed if they are None."""
        starts = [block.ids[0] for block in self.blocks]
        by_place: dict[int, dict[str, Record | None]] = defaultdict(dict)
        for package_id, record in changes.items():
            by_place[max(bisect_right(starts, package_id) - 1, 0)][package_id] = record
        segments: list[IndexSegment] = []
        for place, block in enumerate(self.blocks or [IndexSegment([])]):
            segments += _replaced(block, by_place[place]) if place in by_place else [block]
        return Index(revision, [block for block in segments if block.records])


def _replaced(block: IndexSegment, changes: Mapping[str, Record | None]) -> Sequence[IndexSegment]:
    before: dict[str, Record | None] = {record.package_id: record for record in block.records}
    records = [record for _, record in sorted({**before, **changes}.items()) if record]
    return [block] if records == list(block.records) else segments_of(records)


def segments_of(records: Sequence[Record]) -> Sequence[IndexSegment]:
    """Cut sorted records into segments."""
    size = SIZE if len(records) >= 2 * SIZE else 2 * SIZE
    return [IndexSegment(records[start : start + size]) for start in range(0, len(records), size)]
