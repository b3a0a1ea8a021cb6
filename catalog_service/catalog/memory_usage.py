"""What answers hold that are not sent yet, because their readers are slow, though it is kept no more."""

from collections.abc import Iterable
from weakref import WeakSet, finalize

from catalog_service.catalog.snapshot import Segment


class Copy:
    """Stands for bytes that are one answer's alone, for as long as it is there."""


class RetainedBytes:
    """Counts it."""

    def __init__(self) -> None:
        self._left: WeakSet[Segment] = WeakSet()
        self._copied = 0

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(segment.size for segment in self._left) + self._copied

    def track(self, segments: Iterable[Segment]) -> None:
        """Count what is kept no more: where nothing holds it, it is gone with that."""
        self._left.update(segments)

    def copy(self, size: int) -> Copy:
        """Count so many bytes of a copy."""
        copy = Copy()
        self._copied += size
        finalize(copy, self._give_back, size)
        return copy

    def _give_back(self, size: int) -> None:
        self._copied -= size
