"""Packages with their versions, read from the two places where they are kept, in the order of package ids."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from catalog_service.model.ordering import HasVersionName, newest_first
from catalog_service.model.packages import Package
from catalog_service.model.versions import PackageVersion, VersionName
from catalog_service.packages.service import DescribedPackage


class HasPackageId(Protocol):
    """A package, or as much of one as is wanted."""

    @property
    def package_id(self) -> str: ...


class HasVersion(HasVersionName, Protocol):
    """A version, or as much of one as is wanted, and the package that it is of."""

    @property
    def package_id(self) -> str: ...


Some = TypeVar("Some", bound=HasPackageId)
Version = TypeVar("Version", bound=HasVersion)


@dataclass(frozen=True)
class Entry(Generic[Some, Version]):
    """A package with its versions; `newest_first` puts these in order."""

    package: Some
    names: Sequence[Version]

    @property
    def versions(self) -> Sequence[Version]:
        return newest_first(self.names)


CatalogEntry = Entry[Package, VersionName]
WholeEntry = Entry[DescribedPackage, PackageVersion]


# All packages, or these, ordered by id; some hundred at a time.
PackageReader = Callable[[str, Collection[str] | None], AsyncIterator[Sequence[Some]]]
# Versions of all packages, or of these, ordered by package id; some thousand at a time.
VersionReader = Callable[[str, Collection[str] | None], AsyncIterator[Sequence[Version]]]


class Entries(Generic[Some, Version]):
    """Reads a catalog without ever holding all of it."""

    def __init__(self, read_packages: PackageReader[Some], read_versions: VersionReader[Version]) -> None:
        self._read_packages = read_packages
        self._read_versions = read_versions

    async def read(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[Entry[Some, Version]]]:
        """All packages, or these, ordered by id; some hundred at a time."""
        batches = self._read_versions(tenant_id, package_ids)
        names: Sequence[Version] = []  # those that are read, and belong to packages that are not yet
        more = True
        async for packages in self._read_packages(tenant_id, package_ids):
            last = packages[-1].package_id
            while more and (not names or names[-1].package_id <= last):
                batch = await anext(batches, None)
                more = batch is not None
                names = [*names, *(batch or ())]
            end = bisect_right(names, last, key=lambda name: name.package_id)
            by_package: dict[str, list[Version]] = defaultdict(list)
            for name in names[:end]:
                by_package[name.package_id].append(name)
            names = names[end:]
            yield [Entry(package, by_package[package.package_id]) for package in packages]
