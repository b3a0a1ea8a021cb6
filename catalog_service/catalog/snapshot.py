"""A rendered catalog in segments of about 256 packages.

A changed package renders only its segment again; the others stay in every encoding. Packages hidden from a caller are
left out when segments are joined, without rendering.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from weakref import WeakSet, finalize

from catalog_service.catalog.compression import Encoding, Part
from catalog_service.catalog.segments import replaced_segments

SEGMENT = 256  # packages; a segment of twice as many is split
OVERHEAD = 200  # bytes of a package beside its JSON


@dataclass(frozen=True)
class Fragment:
    """One package in JSON."""

    package_id: str
    active: bool
    text: bytes


@dataclass(frozen=True)
class View:
    """The visible part of a catalog."""

    include_disabled: bool
    hidden: frozenset[str] = frozenset()


class Segment:
    """Consecutive packages in the order of their ids; immutable."""

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self.ids = [fragment.package_id for fragment in fragments]
        self.inactive = frozenset(fragment.package_id for fragment in fragments if not fragment.active)
        self._text = b",".join(fragment.text for fragment in fragments)
        self._lengths = array("L", (len(fragment.text) for fragment in fragments))
        self._parts: dict[tuple[str, bool], Part] = {}

    @property
    def size(self) -> int:
        """The bytes of the segment with all its parts."""
        plain = len(self._text) * (2 if self.inactive else 1)  # also the text without inactive packages
        return plain + OVERHEAD * len(self.ids) + sum(len(part.data) for key, part in self._parts.items() if key[0])

    @property
    def length(self) -> int:
        """The bytes of its JSON."""
        return len(self._text)

    def items(self) -> Iterator[Fragment]:
        """Yield its packages."""
        start = 0
        for package_id, length in zip(self.ids, self._lengths, strict=True):
            yield Fragment(package_id, package_id not in self.inactive, self._text[start : start + length])
            start += length + 1  # the comma

    def part(self, view: View, encoding: Encoding) -> Part:
        """Return the segment in a view. It is cached unless the view hides packages."""
        hidden = view.hidden.intersection(self.ids) if view.hidden else None
        if hidden:
            return encoding.wrap(self._without(hidden if view.include_disabled else hidden | self.inactive))
        key = self._key(view, encoding)
        if key not in self._parts:
            self._parts[key] = encoding.pack(self._text if key[1] else self._without(self.inactive))
        return self._parts[key]

    def lacks(self, view: View, encoding: Encoding) -> bool:
        """Whether the part for a view is missing in the cache."""
        key = self._key(view, encoding)
        return key != ("", True) and key not in self._parts

    def _key(self, view: View, encoding: Encoding) -> tuple[str, bool]:
        return encoding.name, view.include_disabled or not self.inactive

    def _without(self, left_out: Set[str]) -> bytes:
        return b",".join(fragment.text for fragment in self.items() if fragment.package_id not in left_out)


@dataclass(frozen=True)
class Snapshot:
    """A catalog at a revision, or later."""

    revision: str
    segments: Sequence[Segment] = ()
    _joined: dict[tuple[str, bool], list[bytes]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def replaced(self, revision: str, changes: Mapping[str, Fragment | None]) -> "Snapshot":
        """Return the catalog at a later revision, with these packages replaced, or removed if they are None."""
        segments = replaced_segments(self.segments, changes, Segment, SEGMENT)
        return Snapshot(revision, segments, self._joined if segments == list(self.segments) else {})

    def lacking(self, view: View, encoding: Encoding) -> Sequence[Segment]:
        """Return the segments without a cached part for the view."""
        if (encoding.name, view.include_disabled) in self._joined:
            return []
        return [segment for segment in self.segments if segment.lacks(view, encoding)]

    def copied(self, view: View) -> int:
        """Return the bytes of JSON that a view copies at most to leave out hidden packages."""
        return sum(segment.length for segment in self.segments if not view.hidden.isdisjoint(segment.ids))

    def answer(self, view: View, encoding: Encoding) -> Sequence[bytes]:
        """Return the JSON array of a view, in blocks."""
        if view.hidden:
            return self._answer(view, encoding)
        key = encoding.name, view.include_disabled
        if key not in self._joined:
            self._joined[key] = self._answer(view, encoding)
        return self._joined[key]

    def _answer(self, view: View, encoding: Encoding) -> list[bytes]:
        parts = [segment.part(view, encoding) for segment in self.segments]
        return encoding.joined([part for part in parts if part.length])


class Copy:
    """Represents the bytes of one response that no other shares, while it exists."""


class RetainedBytes:
    """Counts memory still referenced by responses to slow clients after the cache dropped it."""

    def __init__(self) -> None:
        self._segments: WeakSet[Segment] = WeakSet()
        self._copied = 0

    @property
    def size(self) -> int:
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
