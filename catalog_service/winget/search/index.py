"""All packages of a tenant that can be found, in blocks."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from catalog_service.winget.search.index_segment import SIZE, IndexSegment, Record


@dataclass(frozen=True)
class Index:
    """What can be found at a revision, or later."""

    revision: str
    blocks: Sequence[IndexSegment] = ()

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(block.size for block in self.blocks)

    def replaced(self, revision: str, changes: Mapping[str, Record | None]) -> "Index":
        """At a later revision, to which these packages were changed, or can be found no more where they are None."""
        starts = [block.ids[0] for block in self.blocks]
        by_place: dict[int, dict[str, Record | None]] = defaultdict(dict)
        for package_id, record in changes.items():
            by_place[max(bisect_right(starts, package_id) - 1, 0)][package_id] = record
        found: list[IndexSegment] = []
        for place, block in enumerate(self.blocks or [IndexSegment([])]):
            found += _replaced(block, by_place[place]) if place in by_place else [block]
        return Index(revision, [block for block in found if block.records])


def _replaced(block: IndexSegment, changes: Mapping[str, Record | None]) -> Sequence[IndexSegment]:
    before: dict[str, Record | None] = {record.package_id: record for record in block.records}
    records = [record for _, record in sorted({**before, **changes}.items()) if record]
    if records == list(block.records):
        return [block]
    return list(blocks(records)) if len(records) >= 2 * SIZE else [IndexSegment(records)]


def blocks(records: Iterable[Record]) -> Iterator[IndexSegment]:
    """Records in the order of their ids, cut into blocks."""
    row: list[Record] = []
    for record in records:
        row.append(record)
        if len(row) == SIZE:
            yield IndexSegment(row)
            row = []
    if row:
        yield IndexSegment(row)
