"""Segments of a catalog: immutable groups of consecutive packages, in the order of their ids."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar


class AnySegment(Protocol):
    @property
    def first_id(self) -> str:
        """The id of its first package; "" without packages."""

    def items(self) -> Iterable[Any]:
        """Return the packages, which have a `package_id` each."""


Item = TypeVar("Item")
Segment = TypeVar("Segment", bound=AnySegment)


def replaced_segments(
    segments: Sequence[Segment],
    changes: Mapping[str, Item | None],
    create: Callable[[Sequence[Item]], Segment],
    size: int,
) -> list[Segment]:
    """Return the segments with these packages replaced, or removed if they are None. Segments without changes stay."""
    by_position: dict[int, dict[str, Item | None]] = defaultdict(dict)
    for package_id, position in find_positions(segments, changes).items():
        by_position[position][package_id] = changes[package_id]
    result: list[Segment] = []
    for position, segment in enumerate(segments or [create([])]):
        if position not in by_position:
            result.append(segment)
            continue
        before: dict[str, Item | None] = {item.package_id: item for item in segment.items()}
        items = [item for _, item in sorted({**before, **by_position[position]}.items()) if item]
        result += [segment] if items == list(before.values()) else segments_of(items, create, size)
    return [segment for segment in result if segment.first_id]


def find_positions(segments: Sequence[AnySegment], package_ids: Iterable[str]) -> dict[str, int]:
    """Return the position of the segment that each package belongs to, or would belong to."""
    starts = [segment.first_id for segment in segments]
    return {package_id: max(bisect_right(starts, package_id) - 1, 0) for package_id in package_ids}


def segments_of(items: Sequence[Item], create: Callable[[Sequence[Item]], Segment], size: int) -> list[Segment]:
    """Return segments of `size` items; fewer than twice as many stay together."""
    step = size if len(items) >= 2 * size else 2 * size
    return [create(items[start : start + step]) for start in range(0, len(items), step)]
