"""The packages of a tenant, and who must not see which."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol

from catalog_service.model.manifest.package import PackageManifest
from catalog_service.model.packages import Package, PackageChanges, PackageNotFound
from common.auth.callers import Caller, Kind


@dataclass(frozen=True)
class DescribedPackage:
    """A package with all that it says of itself: more than catalogs show."""

    package: Package
    manifest: PackageManifest

    @property
    def package_id(self) -> str:
        return self.package.package_id


class PackageStore(Protocol):
    """Where packages are kept. A package whose deletion has begun is there for `begin_deletion` alone."""

    async def add(self, tenant_id: str, package: Package, manifest: PackageManifest) -> None:
        """Raises PackageExists."""

    async def find(self, tenant_id: str, package_id: str) -> DescribedPackage | None: ...

    async def change(self, tenant_id: str, package_id: str, changes: PackageChanges) -> PackageChanges:
        """What was there of that which is changed. Raises PackageNotFound."""

    async def begin_deletion(self, tenant_id: str, package_id: str) -> str:
        """Hide the package, and give its `package_uid`; the same again until it ends. Raises PackageNotFound."""

    async def end_deletion(self, tenant_id: str, package_uid: str) -> None: ...


class VersionRemover(Protocol):
    async def remove_all(self, caller: Caller, package_uid: str) -> None:
        """Remove all versions of a package, with their files."""


class Blacklist(Protocol):
    async def hidden_packages(self, caller: Caller) -> Set[str]:
        """The ids of the packages that a client must not see."""


class Packages:
    """Adds, edits, hides and deletes packages (section 4.3)."""

    def __init__(self, store: PackageStore, versions: VersionRemover, blacklist: Blacklist) -> None:
        self._store = store
        self._versions = versions
        self._blacklist = blacklist

    async def hidden_from(self, caller: Caller) -> frozenset[str]:
        """The ids of the packages that this caller must not see (section 4.2).

        Raises Unavailable where a client's blacklist cannot be asked for: it is never taken for empty.
        """
        return frozenset(await self._blacklist.hidden_packages(caller) if caller.kind is Kind.CLIENT else ())

    async def add(self, caller: Caller, described: DescribedPackage) -> None:
        """Raises PackageExists."""
        await self._store.add(caller.tenant_id, described.package, described.manifest)

    async def find(self, caller: Caller, package_id: str) -> DescribedPackage:
        """Raises PackageNotFound."""
        found = await self._store.find(caller.tenant_id, package_id)
        if found is None:
            raise PackageNotFound(package_id)
        return found

    async def edit(self, caller: Caller, package_id: str, changes: PackageChanges) -> dict[str, tuple[str, str]]:
        """What was before and is after, by the changed fields' names, for the audit log. Raises PackageNotFound."""
        before = (await self._store.change(caller.tenant_id, package_id, changes)).to_audit_texts()
        return {name: (before[name], after) for name, after in changes.to_audit_texts().items()}

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
