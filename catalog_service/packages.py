"""The packages of a tenant, and what is listed of them."""

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from catalog_service.model import Package, PackageChanges
from catalog_service.ordering import newest_first
from catalog_service.version_model import VersionName
from common.caller import Caller, Kind


class PackageStore(Protocol):
    """Where packages are kept. A package whose deletion has begun is there for `begin_deletion` alone."""

    async def add(self, tenant_id: str, package: Package) -> None:
        """Raises PackageExists."""

    async def change(self, tenant_id: str, package_id: str, changes: PackageChanges) -> PackageChanges:
        """What was there of that which is changed. Raises PackageNotFound."""

    async def list(self, tenant_id: str, *, include_disabled: bool) -> Sequence[Package]:
        """Ordered by id."""

    async def begin_deletion(self, tenant_id: str, package_id: str) -> str:
        """Hide the package, and give its `package_uid`; the same again until it ends. Raises PackageNotFound."""

    async def end_deletion(self, tenant_id: str, package_uid: str) -> None: ...


class VersionNames(Protocol):
    async def names(self, tenant_id: str) -> Sequence[VersionName]:
        """Of every version that a tenant's packages have."""


class VersionRemover(Protocol):
    async def remove_all(self, caller: Caller, package_uid: str) -> None:
        """Remove all versions of a package, with their files."""


class Blacklist(Protocol):
    async def hidden_packages(self, caller: Caller) -> Set[str]:
        """The ids of the packages that a client must not see."""


@dataclass(frozen=True)
class CatalogEntry:
    """A package with its versions, the newest first."""

    package: Package
    versions: Sequence[VersionName]


class Packages:
    """Adds, edits, lists and deletes packages (section 4.3)."""

    def __init__(
        self, store: PackageStore, names: VersionNames, versions: VersionRemover, blacklist: Blacklist
    ) -> None:
        self._store = store
        self._names = names
        self._versions = versions
        self._blacklist = blacklist

    async def list(self, caller: Caller, *, include_disabled: bool) -> Sequence[CatalogEntry]:
        """The catalog as this caller may see it, ordered by package id (section 4.2).

        Raises Unavailable where a client's blacklist cannot be asked for: it is never taken for empty.
        """
        hidden = await self._blacklist.hidden_packages(caller) if caller.kind is Kind.CLIENT else frozenset[str]()
        packages = await self._store.list(caller.tenant_id, include_disabled=include_disabled)
        versions: dict[str, list[VersionName]] = defaultdict(list)
        for name in await self._names.names(caller.tenant_id):
            versions[name.package_id].append(name)
        return [
            CatalogEntry(package, newest_first(versions[package.package_id]))
            for package in packages
            if package.package_id not in hidden
        ]

    async def add(self, caller: Caller, package: Package) -> None:
        """Raises PackageExists."""
        await self._store.add(caller.tenant_id, package)

    async def edit(self, caller: Caller, package_id: str, changes: PackageChanges) -> dict[str, tuple[str, str]]:
        """What was before and is after, by the changed fields' names, for the audit log. Raises PackageNotFound."""
        before = (await self._store.change(caller.tenant_id, package_id, changes)).told()
        return {name: (before[name], after) for name, after in changes.told().items()}

    async def delete(self, caller: Caller, package_id: str) -> None:
        """Remove a package with its versions and files: hidden first, gone last, so that repeating it finishes it.

        Its id stays taken until the end.

        Raises:
            PackageNotFound: there is none.
            Unavailable: the files could not be removed yet.
        """
        package_uid = await self._store.begin_deletion(caller.tenant_id, package_id)
        await self.finish_deletion(caller, package_uid)

    async def finish_deletion(self, caller: Caller, package_uid: str) -> None:
        """Go on with a deletion that has begun. Raises Unavailable."""
        await self._versions.remove_all(caller, package_uid)
        await self._store.end_deletion(caller.tenant_id, package_uid)
