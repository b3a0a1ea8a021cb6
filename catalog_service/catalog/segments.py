"""Segments of a catalog: immutable groups of consecutive packages, in the order of their ids."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol, TypeVar


class AnySegment(Protocol):
    @property
    def first_id(self) -> str:
        """The id of its first package; "" without packages."""

    def items(self) -> Iterable[Any]:
        """Return the items, which have a `package_id` each; a package may have several."""


Item = TypeVar("Item")
Segment = TypeVar("Segment", bound=AnySegment)


def replaced_segments(
    segments: Sequence[Segment],
    changes: Mapping[str, Sequence[Item]],
    create: Callable[[Sequence[Item]], Segment],
    size: int,
) -> list[Segment]:
    """Return the segments with the items of these packages replaced, if any. Segments without changes stay."""
    by_position: dict[int, dict[str, Sequence[Item]]] = defaultdict(dict)
    for package_id, position in find_positions(segments, changes).items():
        by_position[position][package_id] = changes[package_id]
    result: list[Segment] = []
    for position, segment in enumerate(segments or [create([])]):
        if position not in by_position:
            result.append(segment)
            continue
        before = {package_id: list(items) for package_id, items in groupby(segment.items(), attrgetter("package_id"))}
        after = [list(items) for _, items in sorted({**before, **by_position[position]}.items()) if items]
        result += [segment] if after == list(before.values()) else segments_of(after, create, size)
    return [segment for segment in result if segment.first_id]


def find_positions(segments: Sequence[AnySegment], package_ids: Iterable[str]) -> dict[str, int]:
    """Return the position of the segment that each package belongs to, or would belong to."""
    starts = [segment.first_id for segment in segments]
    return {package_id: max(bisect_right(starts, package_id) - 1, 0) for package_id in package_ids}


def segments_of(
    packages: Sequence[Sequence[Item]], create: Callable[[Sequence[Item]], Segment], size: int
) -> list[Segment]:
    """Return segments of `size` packages, given the items of each; fewer than twice as many stay together."""
    step = size if len(packages) >= 2 * size else 2 * size
    return [
        create([item for items in packages[start : start + step] for item in items])
        for start in range(0, len(packages), step)
    ]
