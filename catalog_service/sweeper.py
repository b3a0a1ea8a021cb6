"""Settles what a crash, or a service that did not answer, left halfway: finished where possible, else undone."""

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

AGE = 60  # seconds; a request is answered long before


@dataclass(frozen=True)
class HiddenVersion:
    """A version whose deletion has begun."""

    tenant_id: str
    uid: str


class UnfinishedPackages(Protocol):
    async def find_unfinished(self, age: int) -> Sequence[tuple[str, str]]:
        """Tenant and `package_uid` of the deletions that began more than `age` seconds ago."""


class UnfinishedVersions(Protocol):
    async def find_unfinished(self, age: int) -> Sequence[PendingVersion | HiddenVersion]:
        """The versions that were left halfway more than `age` seconds ago."""

    async def delete_record(self, hidden: HiddenVersion) -> None: ...


class Sweeper:
    """Looks at all tenants. Several replicas may sweep at once: each step may be repeated."""

    def __init__(
        self,
        packages: Packages,
        versions: Versions,
        installers: Installers,
        halfway_packages: UnfinishedPackages,
        halfway_versions: UnfinishedVersions,
    ) -> None:
        self._packages = packages
        self._versions = versions
        self._installers = installers
        self._halfway_packages = halfway_packages
        self._halfway_versions = halfway_versions

    async def sweep(self) -> None:
        """Settle what has been halfway for a minute; what cannot be settled now is left for the next time."""
        await with_each("sweeper", await self._halfway_packages.find_unfinished(AGE), self._finish_deletion)
        await with_each("sweeper", await self._halfway_versions.find_unfinished(AGE), self._settle)

    async def _finish_deletion(self, begun: tuple[str, str]) -> None:
        tenant_id, package_uid = begun
        await self._packages.finish_deletion(_service_of(tenant_id), package_uid)

    async def _settle(self, version: PendingVersion | HiddenVersion) -> None:
        caller = _service_of(version.tenant_id)
        if isinstance(version, HiddenVersion):
            await self._installers.release(caller, [version.uid])
            await self._halfway_versions.delete_record(version)
            return
        try:
            await self._versions.finish(caller, version)
        except Problem as problem:
            if problem.status >= 500:
                raise
            log.info("version_undone", code=problem.code, detail=problem.detail)  # A refusal settles it as well.


def _service_of(tenant_id: str) -> Caller:
    return Caller.service(Tenant(tenant_id))
