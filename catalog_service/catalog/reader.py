"""Reads packages with their versions from two stores, in the order of package ids."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic

from catalog_service.model.ordering import AnyVersion, newest_first
from catalog_service.model.packages import Package
from catalog_service.model.versions import PackageVersion, VersionName


@dataclass(frozen=True)
class Entry(Generic[AnyVersion]):
    """A package with its versions; `names` has no order."""

    package: Package
    names: Sequence[AnyVersion]

    @property
    def versions(self) -> Sequence[AnyVersion]:
        return newest_first(self.names)


CatalogEntry = Entry[VersionName]
WholeEntry = Entry[PackageVersion]

# Each yields all packages, their versions or both, or those of these packages, in batches ordered by package id.
PackageReader = Callable[[str, Collection[str] | None], AsyncIterator[Sequence[Package]]]
VersionReader = Callable[[str, Collection[str] | None], AsyncIterator[Sequence[AnyVersion]]]
EntryReader = Callable[[str, Collection[str] | None], AsyncIterator[Sequence[Entry[AnyVersion]]]]


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
