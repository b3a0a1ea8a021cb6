"""Finishes or undoes operations that a crash, or a failed call to a service, interrupted."""

from catalog_service.outgoing.upload_service import UploadService
from catalog_service.packages.service import Packages
from catalog_service.store import MongoCatalogStore
from catalog_service.versions.model import HiddenVersion, PendingVersion
from catalog_service.versions.service import Versions
from common.auth.internal_tokens import Caller
from common.concurrency.background import with_each
from common.errors import Problem
from common.telemetry import log
from common.tenants import Tenant

AGE = 60  # seconds; a request ends long before


class Sweeper:
    """Sweeps all tenants. Several replicas may sweep at once, because each step may be repeated."""

    def __init__(
        self, store: MongoCatalogStore, packages: Packages, versions: Versions, installers: UploadService
    ) -> None:
        self._store = store
        self._packages = packages
        self._versions = versions
        self._installers = installers

    async def sweep(self) -> None:
        """Finish or undo what stopped a minute ago; failures are tried again in the next sweep."""
        await with_each("sweeper", await self._store.packages.find_unfinished(AGE), self._finish_deletion)
        await with_each("sweeper", await self._store.versions.find_unfinished(AGE), self._finish_version)

    async def _finish_deletion(self, begun: tuple[str, str]) -> None:
        tenant_id, package_uid = begun
        await self._packages.finish_deletion(_service_of(tenant_id), package_uid)

    async def _finish_version(self, version: PendingVersion | HiddenVersion) -> None:
        caller = _service_of(version.tenant_id)
        if isinstance(version, HiddenVersion):
            await self._installers.release(caller, [version.uid])
            await self._store.versions.delete_record(version)
            return
        try:
            await self._versions.finish(caller, version)
        except Problem as problem:
            if problem.status >= 500:
                raise
            log.info("version_undone", code=problem.code, detail=problem.detail)  # A refusal undoes the version.


def _service_of(tenant_id: str) -> Caller:
    return Caller.service(Tenant(tenant_id))
