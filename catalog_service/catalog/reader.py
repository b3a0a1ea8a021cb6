"""Reads packages with their versions from two stores, in the order of package ids."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from catalog_service.model.ordering import newest_first
from catalog_service.model.packages import Package
from catalog_service.model.versions import PackageVersion, VersionName

AnyVersion = TypeVar("AnyVersion", bound=VersionName | PackageVersion)


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


# Yields all packages, or these, ordered by id.
PackageReader = Callable[[str, Collection[str] | None], AsyncIterator[Sequence[Package]]]
# Yields the versions of all packages, or of these, ordered by package id.
VersionReader = Callable[[str, Collection[str] | None], AsyncIterator[Sequence[AnyVersion]]]


class EntryReader(Protocol[AnyVersion]):
    def read(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[Entry[AnyVersion]]]:
        """Yield all packages, or these, ordered by id, in batches."""


CatalogReader = EntryReader[VersionName]
WholeReader = EntryReader[PackageVersion]


class Entries(Generic[AnyVersion]):
    """Reads a catalog in batches."""

    def __init__(self, read_packages: PackageReader, read_versions: VersionReader[AnyVersion]) -> None:
        self._read_packages = read_packages
        self._read_versions = read_versions

    async def read(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[Entry[AnyVersion]]]:
        """Yield all packages, or these, ordered by id, in batches."""
        batches = self._read_versions(tenant_id, package_ids)
        names: Sequence[AnyVersion] = []  # of packages that are not read yet
        more = True
        async for packages in self._read_packages(tenant_id, package_ids):
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
