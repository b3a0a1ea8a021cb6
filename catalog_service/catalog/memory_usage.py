"""Memory still referenced by responses to slow clients after the cache dropped it."""

from collections.abc import Iterable
from weakref import WeakSet, finalize

from catalog_service.catalog.snapshot import Segment


class Copy:
    """Represents the bytes of one response that no other shares, while it exists."""


class RetainedBytes:
    """Counts the bytes."""

    def __init__(self) -> None:
        self._segments: WeakSet[Segment] = WeakSet()
        self._copied = 0

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(segment.size for segment in self._segments) + self._copied

    def track(self, segments: Iterable[Segment]) -> None:
        """Count segments that the cache dropped, until nothing references them."""
        self._segments.update(segments)

    def copy(self, size: int) -> Copy:
        """Count the bytes of a copy while it exists."""
        copy = Copy()
        self._copied += size
        finalize(copy, self._release, size)
        return copy

    def _release(self, size: int) -> None:
        self._copied -= size
