"""The background work of release control. Every replica does it, because each step may be repeated."""

from collections import defaultdict
from contextlib import suppress
from dataclasses import replace

from catalog_service.model.packages import VersionNotFound
from catalog_service.model.releases import VersionRelease
from catalog_service.outgoing.auth_service import AuthService
from catalog_service.outgoing.upload_service import UploadService
from catalog_service.releases.facts import service_of
from catalog_service.releases.policy_store import MongoPolicyStore
from catalog_service.releases.service import Releases
from catalog_service.releases.store import MongoReleaseStore
from common.concurrency.background import with_each
from common.errors import Problem
from common.telemetry import log

BATCH = 200  # versions of one round


class ReleaseLoop:
    """Looks at the versions that are due, records automatic changes in the audit log, and holds infected versions."""

    def __init__(
        self,
        releases: Releases,
        store: MongoReleaseStore,
        policies: MongoPolicyStore,
        installers: UploadService,
        audit: AuthService,
    ) -> None:
        self._releases = releases
        self._store = store
        self._policies = policies
        self._installers = installers
        self._audit = audit

    async def run(self) -> None:
        """Do what is due. A failure leaves it due."""
        by_tenant: dict[str, list[VersionRelease]] = defaultdict(list)
        for version in await self._store.due(BATCH):
            by_tenant[version.tenant_id].append(version)

        async def advance(tenant_id: str) -> None:
            versions = [await self._record(version) for version in by_tenant[tenant_id]]
            await self._releases.advance(tenant_id, versions)

        await with_each("releases", by_tenant, advance)

    async def hold_infected(self) -> None:
        """Hold the versions whose files turned out to be infected, of all tenants with a scan gate."""

        async def hold(version: tuple[str, str]) -> None:
            with suppress(VersionNotFound):  # It is being deleted.
                await self._releases.hold_infected(*version)

        async def hold_all(tenant_id: str) -> None:
            uids = await self._installers.infected(service_of(tenant_id))
            await with_each("infected", [(tenant_id, uid) for uid in uids], hold)

        await with_each("infected", await self._policies.with_scan(), hold_all)

    async def _record(self, version: VersionRelease) -> VersionRelease:
        """Record a version's automatic changes in the audit log. Return it with those that are not recorded yet."""
        entries = version.release.unaudited
        try:
            while entries:
                await self._audit.record(service_of(version.tenant_id), entries[0])
                entries = entries[1:]
        except Problem as problem:
            log.warning("audit_delayed", tenant_id=version.tenant_id, uid=version.uid, detail=problem.detail)
        return replace(version, release=replace(version.release, unaudited=entries))
