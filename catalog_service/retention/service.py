"""Previews and runs of retention."""

import asyncio
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby

from catalog_service.catalog.revision_store import StateReader
from catalog_service.model.installers import Downloads
from catalog_service.model.releases import VersionRelease
from catalog_service.releases.gates import Facts, Policy
from catalog_service.releases.service import INFECTED, Releases, service_of
from catalog_service.releases.transitions import delete, hold, resume, retire
from catalog_service.retention.plan import Preview, StoredVersion, plan, reason_of
from catalog_service.retention.store import MongoRetentionStore
from catalog_service.versions.service import Versions
from catalog_service.versions.store import HIDE
from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from common.mongo import Document
from common.telemetry import log
from common.work import Lease, Worker

PLANS = 5  # that a run makes while the catalog changes
CHANGED_AT_ONCE = 500  # versions; a change of a package must end within a minute


@dataclass(frozen=True)
class Retention:
    """Says which versions go, and lets them go in two steps."""

    store: MongoRetentionStore
    read_state: StateReader
    releases: Releases
    versions: Versions

    async def preview(self, caller: Caller, policy: Policy | None = None) -> Preview:
        """Return what a run does now, under the tenant's policy or another one.

        Raises Unavailable, also if a rule needs downloads and nobody can tell them.
        """
        return await self._preview(caller, await self.store.now(), policy)

    async def run_due(self) -> None:
        """Run retention for each tenant that had no run today, each in one replica at a time."""
        await self.store.add_tenants()
        await Worker(self.store.queue, self._run).run_due()

    async def _run(self, lease: Lease[str]) -> None:
        tenant_id, now = lease.tenant_id, await self.store.now()
        caller = service_of(tenant_id)
        preview = await self._unchanged_preview(caller, now)
        over = [version for version, _ in preview.retired if version.deleted_at and version.deleted_at <= now]
        deleted = await self._change(tenant_id, over, delete, *HIDE)
        reasons = {version.package_id: reason_of(rule) for version, rule in preview.expired}
        expired = [version for version, _ in preview.expired]
        retired = await self._change(tenant_id, expired, lambda version: retire(version, reasons[version.package_id]))
        infected = {uid for _, uid in await self.releases.installers.infected(caller)} if preview.resumed else set()
        resumed = await self._change(tenant_id, preview.resumed, partial(_resume, infected=infected))
        await self.releases.run_due()  # The documents of deleted versions stay until the audit log has their deletion.
        for version in over:
            if version.uid in deleted:
                await self.versions.delete(caller, version.package_id, [version.uid])
        await self.store.queue.repeat(lease, _midnight(now) + timedelta(days=1))
        numbers = {"retired": len(retired), "resumed": len(resumed), "deleted": len(deleted)}
        log.info("retention_ran", tenant_id=tenant_id, **numbers)

    async def _change(
        self,
        tenant_id: str,
        versions: Sequence[StoredVersion],
        step: Callable[[VersionRelease], VersionRelease],
        *changes: Document,
    ) -> Sequence[str]:
        """Take a step with versions that have not changed since the plan, each at most once. Return their uids."""
        changed: list[str] = []
        ordered = sorted(versions, key=_package_of)
        for start in range(0, len(ordered), CHANGED_AT_ONCE):
            for package_id, group in groupby(ordered[start : start + CHANGED_AT_ONCE], key=_package_of):
                fences = {version.uid: version.fence for version in group}
                changed += await self.releases.store.change_package(tenant_id, package_id, fences, step, *changes)
        return changed

    async def _unchanged_preview(self, caller: Caller, now: datetime) -> Preview:
        """A preview during which no change of the catalog ended. Raises Unavailable after several attempts."""
        for _ in range(PLANS):
            before = await self.read_state(caller.tenant_id, "")
            preview = await self._preview(caller, now)
            if (await self.read_state(caller.tenant_id, "")).revision == before.revision:
                return preview
        raise Unavailable("The catalog changes all the time; retention is tried again in a minute.")

    async def _preview(self, caller: Caller, now: datetime, policy: Policy | None = None) -> Preview:
        tenant_id, today = caller.tenant_id, _midnight(now)
        revision = (await self.read_state(tenant_id, "")).stable_revision
        policy = policy or await self.releases.policies.find(tenant_id)
        versions = await self.store.versions(tenant_id)
        downloads = await self._downloads(caller, policy)
        expired = await asyncio.to_thread(plan, policy, versions, downloads, today)
        uids = {version.uid for version, _ in expired}
        return Preview(
            revision=revision,
            expired=[(version, rule) for version, rule in expired if not version.is_retired],
            retired=[(version, rule) for version, rule in expired if version.is_retired],
            resumed=[version for version in versions if version.is_retired and version.uid not in uids],
        )

    async def _downloads(self, caller: Caller, policy: Policy) -> Downloads:
        days = max((rule.downloaded_days or 0 for rule in policy.retention), default=0)
        # One day more because the oldest day is not over everywhere, one more for the clock of upload_service.
        return await self.releases.installers.last_downloads(caller, days + 2) if days else Downloads()


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _resume(version: VersionRelease, infected: Set[str]) -> VersionRelease:
    """End the retirement of a version. An infected one is held instead."""
    if not version.is_retired:
        return version
    return hold(version, "", INFECTED) if version.uid in infected else resume(Facts(version), "")


def _package_of(version: StoredVersion) -> str:
    return version.package_id
