"""A tenant's catalog as it is answered: rendered once, in segments of some 256 packages.

A package that changed is rendered anew, and with it the segment that it stands in; all other segments stay as they are,
in every encoding. What a caller may not see is left out by joining what stays, and never by rendering.
"""

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from catalog_service.catalog.compression import Encoding, Part

SEGMENT = 256  # packages; twice as many become two segments
OVERHEAD = 200  # bytes that a package takes beside its JSON


@dataclass(frozen=True)
class Fragment:
    """One package in JSON."""

    package_id: str
    active: bool
    text: bytes


@dataclass(frozen=True)
class View:
    """What of a catalog is to be seen."""

    include_disabled: bool
    hidden: frozenset[str] = frozenset()


class Segment:
    """Packages that follow one another in the order of their ids; never changed, only replaced."""

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self.ids = [fragment.package_id for fragment in fragments]
        self.inactive = frozenset(fragment.package_id for fragment in fragments if not fragment.active)
        self._text = b",".join(fragment.text for fragment in fragments)
        self._lengths = array("L", (len(fragment.text) for fragment in fragments))
        self._kept: dict[tuple[str, bool], Part] = {}

    @property
    def size(self) -> int:
        """How many bytes it takes, with all that is kept of it."""
        plain = len(self._text) * (2 if self.inactive else 1)  # also without what is inactive
        return plain + OVERHEAD * len(self.ids) + sum(len(part.data) for key, part in self._kept.items() if key[0])

    @property
    def length(self) -> int:
        """How many bytes of JSON it is."""
        return len(self._text)

    def fragments(self) -> Iterator[Fragment]:
        """As it was made of."""
        start = 0
        for package_id, length in zip(self.ids, self._lengths, strict=True):
            yield Fragment(package_id, package_id not in self.inactive, self._text[start : start + length])
            start += length + 1  # the comma

    def part(self, view: View, encoding: Encoding) -> Part:
        """What a view shows of it; it is kept, unless packages are hidden from the view."""
        hidden = view.hidden.intersection(self.ids) if view.hidden else None
        if hidden:
            return encoding.wrap(self._without(hidden if view.include_disabled else hidden | self.inactive))
        key = self._key(view, encoding)
        if key not in self._kept:
            self._kept[key] = encoding.pack(self._text if key[1] else self._without(self.inactive))
        return self._kept[key]

    def lacks(self, view: View, encoding: Encoding) -> bool:
        """Whether what a view shows is still to be made: compressed, or without what is inactive."""
        key = self._key(view, encoding)
        return key != ("", True) and key not in self._kept

    def replaced(self, changes: Mapping[str, Fragment | None]) -> "list[Segment]":
        """With these packages put in, or taken out where they are None; one segment, or two, or none."""
        before: dict[str, Fragment | None] = {fragment.package_id: fragment for fragment in self.fragments()}
        fragments = [fragment for _, fragment in sorted({**before, **changes}.items()) if fragment]
        if fragments == list(before.values()):
            return [self][: len(fragments)]
        return list(segments(fragments)) if len(fragments) >= 2 * SEGMENT else [Segment(fragments)][: len(fragments)]

    def _key(self, view: View, encoding: Encoding) -> tuple[str, bool]:
        return encoding.name, view.include_disabled or not self.inactive

    def _without(self, left_out: Set[str]) -> bytes:
        return b",".join(fragment.text for fragment in self.fragments() if fragment.package_id not in left_out)


@dataclass(frozen=True)
class Snapshot:
    """A catalog as it was at a revision, or later."""

    revision: str
    segments: Sequence[Segment] = ()
    _joined: dict[tuple[str, bool], list[bytes]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def replaced(self, revision: str, changes: Mapping[str, Fragment | None]) -> "Snapshot":
        """At a later revision, to which these packages were changed, or removed where they are None."""
        starts = [segment.ids[0] for segment in self.segments]
        by_place: dict[int, dict[str, Fragment | None]] = defaultdict(dict)
        for package_id, fragment in changes.items():
            by_place[max(bisect_right(starts, package_id) - 1, 0)][package_id] = fragment
        found: list[Segment] = []
        for place, segment in enumerate(self.segments or [Segment([])]):
            found += segment.replaced(by_place[place]) if place in by_place else [segment]
        return Snapshot(revision, found, self._joined if found == list(self.segments) else {})

    def lacking(self, view: View, encoding: Encoding) -> Sequence[Segment]:
        """The segments of which what a view shows is still to be made."""
        if (encoding.name, view.include_disabled) in self._joined:
            return []
        return [segment for segment in self.segments if segment.lacks(view, encoding)]

    def copied(self, view: View) -> int:
        """How many bytes of JSON an answer copies, at most, to leave out what is hidden."""
        return sum(segment.length for segment in self.segments if not view.hidden.isdisjoint(segment.ids))

    def answer(self, view: View, encoding: Encoding) -> Sequence[bytes]:
        """The JSON array that a view shows, in blocks."""
        if view.hidden:
            return self._answer(view, encoding)
        key = encoding.name, view.include_disabled
        if key not in self._joined:
            self._joined[key] = self._answer(view, encoding)
        return self._joined[key]

    def _answer(self, view: View, encoding: Encoding) -> list[bytes]:
        parts = [segment.part(view, encoding) for segment in self.segments]
        return encoding.joined([part for part in parts if part.length])


def segments(fragments: Iterable[Fragment]) -> Iterator[Segment]:
    """Fragments in the order of their ids, cut into segments."""
    row: list[Fragment] = []
    for fragment in fragments:
        row.append(fragment)
        if len(row) == SEGMENT:
            yield Segment(row)
            row = []
    if row:
        yield Segment(row)
