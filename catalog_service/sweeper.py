"""Finishes or undoes operations that a crash, or a failed call to a service, interrupted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from catalog_service.packages.service import Packages
from catalog_service.versions.service import Installers, PendingVersion, Versions
from common.auth.callers import Caller
from common.concurrency.background import with_each
from common.errors import Problem
from common.telemetry import log
from common.tenants import Tenant

AGE = 60  # seconds; a request ends long before


@dataclass(frozen=True)
class HiddenVersion:
    """A version whose deletion has begun."""

    tenant_id: str
    uid: str


class UnfinishedPackages(Protocol):
    async def find_unfinished(self, age: int) -> Sequence[tuple[str, str]]:
        """Return tenant and `package_uid` of the deletions that began more than `age` seconds ago."""


class UnfinishedVersions(Protocol):
    async def find_unfinished(self, age: int) -> Sequence[PendingVersion | HiddenVersion]:
        """Return the versions whose creation or deletion stopped more than `age` seconds ago."""

    async def delete_record(self, hidden: HiddenVersion) -> None: ...


class Sweeper:
    """Sweeps all tenants. Several replicas may sweep at once, because each step may be repeated."""

    def __init__(
        self,
        packages: Packages,
        versions: Versions,
        installers: Installers,
        unfinished_packages: UnfinishedPackages,
        unfinished_versions: UnfinishedVersions,
    ) -> None:
        self._packages = packages
        self._versions = versions
        self._installers = installers
        self._unfinished_packages = unfinished_packages
        self._unfinished_versions = unfinished_versions

    async def sweep(self) -> None:
        """Finish or undo what stopped a minute ago; failures are tried again in the next sweep."""
        await with_each("sweeper", await self._unfinished_packages.find_unfinished(AGE), self._finish_deletion)
        await with_each("sweeper", await self._unfinished_versions.find_unfinished(AGE), self._finish_version)

    async def _finish_deletion(self, begun: tuple[str, str]) -> None:
        tenant_id, package_uid = begun
        await self._packages.finish_deletion(_service_of(tenant_id), package_uid)

    async def _finish_version(self, version: PendingVersion | HiddenVersion) -> None:
        caller = _service_of(version.tenant_id)
        if isinstance(version, HiddenVersion):
            await self._installers.release(caller, [version.uid])
            await self._unfinished_versions.delete_record(version)
            return
        try:
            await self._versions.finish(caller, version)
        except Problem as problem:
            if problem.status >= 500:
                raise
            log.info("version_undone", code=problem.code, detail=problem.detail)  # A refusal undoes the version.


def _service_of(tenant_id: str) -> Caller:
    return Caller.service(Tenant(tenant_id))
