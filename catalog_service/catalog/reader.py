"""Reads packages with their versions from two stores, in the order of package ids, and groups them into segments."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Generic, Protocol, Self, TypeVar

from catalog_service.model.packages import Package
from catalog_service.model.releases import is_offered
from catalog_service.model.versions import AnyVersion, PackageVersion, VersionName, newest_first
from common.tenants import ALL_RINGS, DEFAULT_RING

Rendered = TypeVar("Rendered", bound=Hashable)
Rings = tuple[str, ...] | None  # those that see something; None is every ring


@dataclass(frozen=True)
class Entry(Generic[AnyVersion]):
    """A package with its versions; `names` has no order."""

    package: Package
    names: Sequence[AnyVersion]

    @property
    def versions(self) -> Sequence[AnyVersion]:
        return newest_first(self.names)

    def offered_to(self, ring: str, rings: Sequence[str]) -> Self | None:
        """Return the package with the versions offered to one of a tenant's rings, None if the ring does not see it."""
        names = [name for name in self.names if is_offered(name.stage, ring, rings)]
        # Without release control, packages without any version are shown.
        return replace(self, names=names) if names or ring == ALL_RINGS or not (rings or self.names) else None

    def rendered(
        self, rings: Sequence[str], render: Callable[[Self], Rendered | None]
    ) -> Sequence[tuple[Rendered, Rings]]:
        """Render what a tenant's rings see, once for all rings that see the same."""
        if all(name.stage is None for name in self.names) and (self.names or not rings):
            result = render(self)
            return [] if result is None else [(result, None)]
        audiences = (ALL_RINGS, *(rings or (DEFAULT_RING,)))
        results: dict[Rendered, list[str]] = {}
        by_versions: dict[tuple[str, ...], Rendered | None] = {}
        for ring in audiences:
            if entry := self.offered_to(ring, rings):
                uids = tuple(name.uid for name in entry.names)
                if uids not in by_versions:
                    by_versions[uids] = render(entry)
                if (result := by_versions[uids]) is not None:
                    results.setdefault(result, []).append(ring)
        return [(result, tuple(seen) if len(seen) < len(audiences) else None) for result, seen in results.items()]


CatalogEntry = Entry[VersionName]
WholeEntry = Entry[PackageVersion]

# Each yields all packages, their versions or both, or those of these packages, in batches ordered by package id.
PackageReader = Callable[[str, Collection[str] | None], AsyncIterator[Sequence[Package]]]
VersionReader = Callable[[str, Collection[str] | None], AsyncIterator[Sequence[AnyVersion]]]
EntryReader = Callable[[str, Collection[str] | None], AsyncIterator[Sequence[Entry[AnyVersion]]]]
# Returns the rings of a tenant in order; none without release control.
RingReader = Callable[[str], Awaitable[Sequence[str]]]


async def read_entries(
    read_packages: PackageReader,
    read_versions: VersionReader[AnyVersion],
    tenant_id: str,
    package_ids: Collection[str] | None,
) -> AsyncIterator[Sequence[Entry[AnyVersion]]]:
    """Yield all packages, or these, in batches ordered by id."""
    batches = read_versions(tenant_id, package_ids)
    names: Sequence[AnyVersion] = []  # of packages that are not read yet
    more = True
    async for packages in read_packages(tenant_id, package_ids):
        last = packages[-1].package_id
        while more and (not names or names[-1].package_id <= last):
            batch = await anext(batches, None)
            more = batch is not None
            names = [*names, *(batch or ())]
        end = bisect_right(names, last, key=lambda name: name.package_id)
        by_package: dict[str, list[AnyVersion]] = defaultdict(list)
        for name in names[:end]:
            by_package[name.package_id].append(name)
        names = names[end:]
        yield [Entry(package, by_package[package.package_id]) for package in packages]


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
