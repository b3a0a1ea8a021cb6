"""A rendered catalog in segments of about 256 packages, which are in files.

A changed package renders only its segment again; the others stay in every encoding. Packages hidden from a caller are
left out when segments are joined, without rendering. A package whose versions differ between rings is in its segment
once for all rings that see the same. Rings that see the same packages of a segment share its encodings.

The files take no memory of the process and are sent without copying. A file has no name and is never changed. It exists
while an object refers to it, such as a response to a slow client. The system deletes it when the process ends, however
it ends.
"""

import errno
import os
import resource
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product
from queue import SimpleQueue
from threading import Thread
from weakref import WeakSet, finalize

import orjson

from catalog_service.catalog.compression import PLAIN, Encoding, Part
from catalog_service.catalog.reader import Rings, find_positions, replaced_segments
from common.http.zero_copy.sources import Block, FileRange, read_blocks

ViewKind = tuple[bool, str]  # whether it includes disabled packages, and a ring


@dataclass(frozen=True)
class Fragment:
    """One package in JSON, as some rings see it."""

    package_id: str
    active: bool
    text: bytes
    rings: Rings = None


@dataclass(frozen=True)
class View:
    """The part of a catalog that a ring sees, which is one of the tenant's or `ALL_RINGS`."""

    include_disabled: bool
    ring: str
    hidden: frozenset[str] = frozenset()

    def shows(self, package_id: str, active: bool, rings: Rings) -> bool:
        """Whether a fragment with these properties is in the view."""
        return (
            (active or self.include_disabled)
            and (rings is None or self.ring in rings)
            and package_id not in self.hidden
        )


def same_views(fragments: Sequence[Fragment]) -> tuple[Mapping[ViewKind, ViewKind], ViewKind | None]:
    """Return the first kind of view that shows the same as each, and the first one that shows every fragment.

    The ring "" is each ring that no fragment names.
    """
    rings = {ring: None for fragment in fragments for ring in fragment.rings or ()}
    first: dict[tuple[int, ...], ViewKind] = {}
    same: dict[ViewKind, ViewKind] = {}
    for kind in product((True, False), ("", *rings)):
        view = View(*kind)
        shown = [n for n, item in enumerate(fragments) if view.shows(item.package_id, item.active, item.rings)]
        same[kind] = first.setdefault(tuple(shown), kind)
    return same, first.get(tuple(range(len(fragments))))


MIN_SIZE = 4096  # bytes that a file takes on disk
RESERVE = 1 << 30  # bytes that stay free on the disk, or a tenth of a small one
SHARE_OF_DESCRIPTORS = 4  # of the process's open files, one in so many may be a catalog's


class CatalogFile:
    """An open file without a name; `size` is the number of bytes that it counts as."""

    def __init__(self, descriptor: int, length: int, size: int) -> None:
        self._descriptor = descriptor
        self.length = length
        self.size = size
        finalize(self, _closing().put, descriptor).atexit = False

    def fileno(self) -> int:
        return self._descriptor

    def range(self, start: int, end: int) -> FileRange:
        return FileRange(self, start, end - start)


class CatalogFiles:
    """Writes files. Their sizes add up to at most `limit` bytes, which the owner of the files ensures."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._min_size = max(MIN_SIZE, limit * SHARE_OF_DESCRIPTORS // descriptors if descriptors > 0 else 0)

    def size(self, length: int) -> int:
        """Return the bytes that a file of this length counts as: so many that the files do not become too many."""
        return max(length, self._min_size)

    def write(self, *blocks: bytes) -> CatalogFile:
        """Write a file, in a worker thread. Raises OSError if the disk has no room."""
        length = sum(map(len, blocks))
        disk = shutil.disk_usage(tempfile.gettempdir())
        if disk.free - length < min(RESERVE, disk.total // 10):
            raise OSError(errno.ENOSPC, "The disk of temporary files is almost full.")
        with tempfile.TemporaryFile() as file:
            for block in blocks:
                file.write(block)
            file.flush()
            return CatalogFile(os.dup(file.fileno()), length, self.size(length))


@cache
def _closing() -> SimpleQueue[int]:
    """Return a queue of descriptors to close. A thread closes them, because the system then frees the whole file."""
    descriptors: SimpleQueue[int] = SimpleQueue()
    Thread(target=_close_all, args=[descriptors], name="close-catalogs", daemon=True).start()
    return descriptors


def _close_all(descriptors: SimpleQueue[int]) -> None:
    while True:
        with suppress(OSError):  # The descriptor is closed nevertheless.
            os.close(descriptors.get())


SEGMENT = 256  # packages; a segment of twice as many is split
MAX_RANGES = 16  # of a file in a view; more take longer to send than a copy


class Segment:
    """Consecutive packages in the order of their ids; immutable. Its files need a worker thread.

    The first file has the JSON of the fragments, with commas between, and then an index: the package id of each,
    whether it is active, its rings, and the length of its JSON.
    """

    def __init__(self, files: CatalogFiles, fragments: Sequence[Fragment]) -> None:
        """Raises OSError if the disk has no room."""
        self.first_id = fragments[0].package_id if fragments else ""
        self._same, whole = same_views(fragments)
        self._files = files
        text, index = _content(fragments)
        self.length = len(text)  # bytes of its JSON
        self._file = files.write(text, index)
        self.size = self._file.size  # bytes of all its files
        self._parts: dict[tuple[str, ViewKind], Part] = {}
        if whole is not None:
            self._parts["", whole] = _plain_part([self._file.range(0, self.length)])

    def items(self) -> Iterator[Fragment]:
        """Yield its fragments, in the order of their package ids."""
        text, start = read_blocks([self._file.range(0, self.length)]), 0
        for package_id, active, rings, length in self._index():
            yield Fragment(package_id, active, text[start : start + length], rings if rings is None else tuple(rings))
            start += length + 1  # the comma

    def part(self, view: View, encoding: Encoding, *, has_room: bool = False) -> Part:
        """Return the segment in a view. It is cached unless the view hides packages.

        Raises OSError if the disk has no room for an encoding; plain JSON needs none unless `has_room`.
        """
        if view.hidden and not view.hidden.isdisjoint(package_id for package_id, *_ in self._index()):
            ranges = self._ranges(view)
            return _plain_part(ranges) if encoding is PLAIN else encoding.wrap(read_blocks(ranges))
        key = self._key(view, encoding)
        if key not in self._parts:
            ranges = self._ranges(replace(view, hidden=frozenset()))
            is_stored = encoding is not PLAIN or (has_room and len(ranges) > MAX_RANGES)
            self._parts[key] = self._stored(ranges, encoding) if is_stored else _plain_part(ranges)
        return self._parts[key]

    def lacks(self, view: View, encoding: Encoding) -> bool:
        """Whether the part for a view is missing in the cache."""
        return self._key(view, encoding) not in self._parts

    def _stored(self, ranges: Sequence[FileRange], encoding: Encoding) -> Part:
        """Return the JSON of these ranges as a file in an encoding."""
        part = encoding.pack(read_blocks(ranges))
        file = self._files.write(read_blocks(part.blocks))
        self.size += file.size
        return replace(part, blocks=[file.range(0, file.length)])

    def _key(self, view: View, encoding: Encoding) -> tuple[str, ViewKind]:
        others = self._same[view.include_disabled, ""]
        return encoding.name, self._same.get((view.include_disabled, view.ring), others)

    def _ranges(self, view: View) -> Sequence[FileRange]:
        """Return the JSON of the packages in a view."""
        bounds: list[tuple[int, int]] = []
        position = 0
        for package_id, active, rings, length in self._index():
            if view.shows(package_id, active, rings):
                if bounds and bounds[-1][1] == position - 1:
                    bounds[-1] = bounds[-1][0], position + length
                else:
                    bounds.append((position - bool(bounds), position + length))  # with the comma before it
            position += length + 1
        return [self._file.range(start, end) for start, end in bounds]

    def _index(self) -> Sequence[tuple[str, bool, Rings, int]]:
        index: Sequence[tuple[str, bool, Rings, int]] = orjson.loads(
            read_blocks([self._file.range(self.length, self._file.length)])
        )
        return index


def segment_size(files: CatalogFiles, fragments: Sequence[Fragment]) -> int:
    """Return the size that a new segment would have."""
    return files.size(sum(map(len, _content(fragments))))


def _content(fragments: Sequence[Fragment]) -> tuple[bytes, bytes]:
    text = b",".join(fragment.text for fragment in fragments)
    return text, orjson.dumps([(item.package_id, item.active, item.rings, len(item.text)) for item in fragments])


def _plain_part(ranges: Sequence[FileRange]) -> Part:
    return Part(ranges, sum(map(len, ranges)))


@dataclass(frozen=True)
class Snapshot:
    """A catalog at a revision, or later, read with these rings of its tenant."""

    revision: str
    files: CatalogFiles
    segments: Sequence[Segment] = ()
    rings: Sequence[str] = ()
    _joined: dict[tuple[str, bool, str], list[Block]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def replaced(self, revision: str, changes: Mapping[str, Sequence[Fragment]]) -> "Snapshot":
        """Return the catalog at a later revision, with the fragments of these packages replaced."""
        segments = replaced_segments(self.segments, changes, partial(Segment, self.files), SEGMENT)
        joined = self._joined if segments == list(self.segments) else {}
        return Snapshot(revision, self.files, segments, self.rings, joined)

    def lacking(self, view: View, encoding: Encoding) -> Sequence[Segment]:
        """Return the segments without a cached part for the view."""
        if (encoding.name, view.include_disabled, view.ring) in self._joined:
            return []
        return [segment for segment in self.segments if segment.lacks(view, encoding)]

    def copied(self, view: View, encoding: Encoding) -> int:
        """Return the bytes that an encoding copies at most into memory to leave out hidden packages."""
        return 0 if encoding is PLAIN else sum(self.segments[position].length for position in self._hidden(view))

    def answer(self, view: View, encoding: Encoding) -> Sequence[Block]:
        """Return the JSON array of a view, in blocks. A view with hidden packages needs a worker thread."""
        if view.hidden:
            return self._answer(view, encoding)
        key = encoding.name, view.include_disabled, view.ring
        if key not in self._joined:
            self._joined[key] = self._answer(view, encoding)
        return self._joined[key]

    def _answer(self, view: View, encoding: Encoding) -> list[Block]:
        hidden = self._hidden(view)
        views = [replace(view, hidden=frozenset(hidden.get(position, ()))) for position in range(len(self.segments))]
        parts = [segment.part(own_view, encoding) for segment, own_view in zip(self.segments, views, strict=True)]
        return encoding.joined([part for part in parts if part.length])

    def _hidden(self, view: View) -> Mapping[int, Set[str]]:
        """Return the hidden packages by the position of their segment, which need not have them."""
        hidden: dict[int, set[str]] = defaultdict(set)
        for package_id, position in find_positions(self.segments, view.hidden).items():
            hidden[position].add(package_id)
        return hidden if self.segments else {}


class Copy:
    """Represents the bytes of one response that no other shares, while it exists."""


class RetainedBytes:
    """Counts bytes still referenced by responses to slow clients: of files that the cache dropped, and of copies."""

    def __init__(self) -> None:
        self._segments: WeakSet[Segment] = WeakSet()
        self.copied = 0  # bytes of memory

    @property
    def size(self) -> int:
        """Bytes of files."""
        return sum(segment.size for segment in self._segments)

    def track(self, segments: Iterable[Segment]) -> None:
        """Count segments that the cache dropped, until nothing references them."""
        self._segments.update(segments)

    def copy(self, size: int) -> Copy:
        """Count the bytes of a copy while it exists."""
        copy = Copy()
        self.copied += size
        finalize(copy, self._release, size)
        return copy

    def _release(self, size: int) -> None:
        self.copied -= size
