"""The search index of a tenant, in segments."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from catalog_service.winget.search.index_segment import SIZE, IndexSegment, Record


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
