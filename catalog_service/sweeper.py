"""Finishes or undoes operations that a crash, or a failed call to a service, interrupted."""

from catalog_service.model.versions import HiddenVersion, PendingVersion
from catalog_service.packages.service import Packages
from catalog_service.store import MongoCatalogStore
from catalog_service.versions.service import Versions
from common.auth.internal_tokens import Caller
from common.concurrency.background import with_each
from common.errors import Problem
from common.telemetry import log
from common.tenants import Tenant

AGE = 60  # seconds; a request ends long before


async def sweep(store: MongoCatalogStore, packages: Packages, versions: Versions) -> None:
    """Finish or undo what stopped a minute ago, for all tenants; failures are tried again in the next sweep.

    Several replicas may sweep at once, because each step may be repeated.
    """

    async def finish_deletion(deletion: tuple[str, str]) -> None:
        tenant_id, package_uid = deletion
        await packages.finish_deletion(_service_of(tenant_id), package_uid)

    async def finish_version(version: PendingVersion | HiddenVersion) -> None:
        caller = _service_of(version.tenant_id)
        if isinstance(version, HiddenVersion):
            await versions.finish_deletion(caller, version)
            return
        try:
            await versions.finish(caller, version)
        except Problem as problem:
            if problem.status >= 500:
                raise
            log.info("version_undone", code=problem.code, detail=problem.detail)  # A refusal undoes the version.

    await with_each("sweeper", await store.packages.find_unfinished(AGE), finish_deletion)
    await with_each("sweeper", await store.versions.find_unfinished(AGE), finish_version)


def _service_of(tenant_id: str) -> Caller:
    return Caller.service(Tenant(tenant_id))
