"""Packages with their versions, read from the two places where they are kept, in the order of package ids."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from catalog_service.model import Package
from catalog_service.ordering import newest_first
from catalog_service.version_model import VersionName


@dataclass(frozen=True)
class CatalogEntry:
    """A package with its versions; `newest_first` puts these in order."""

    package: Package
    names: Sequence[VersionName]

    @property
    def versions(self) -> Sequence[VersionName]:
        return newest_first(self.names)


class PackageReader(Protocol):
    def read(self, tenant_id: str, package_ids: Collection[str] | None = None) -> AsyncIterator[Sequence[Package]]:
        """All packages, or these, ordered by id; some hundred at a time."""


class VersionReader(Protocol):
    def names(self, tenant_id: str, package_ids: Collection[str] | None = None) -> AsyncIterator[Sequence[VersionName]]:
        """Those of all packages, or of these, ordered by package id; some thousand at a time."""


class Entries:
    """Reads a catalog without ever holding all of it."""

    def __init__(self, packages: PackageReader, versions: VersionReader) -> None:
        self._packages = packages
        self._versions = versions

    async def read(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[CatalogEntry]]:
        """All packages, or these, ordered by id; some hundred at a time."""
        batches = self._versions.names(tenant_id, package_ids)
        names: Sequence[VersionName] = []  # those that are read, and belong to packages that are not yet
        more = True
        async for packages in self._packages.read(tenant_id, package_ids):
            last = packages[-1].package_id
            while more and (not names or names[-1].package_id <= last):
                batch = await anext(batches, None)
                more = batch is not None
                names = [*names, *(batch or ())]
            end = bisect_right(names, last, key=lambda name: name.package_id)
            by_package: dict[str, list[VersionName]] = defaultdict(list)
            for name in names[:end]:
                by_package[name.package_id].append(name)
            names = names[end:]
            yield [CatalogEntry(package, by_package[package.package_id]) for package in packages]
