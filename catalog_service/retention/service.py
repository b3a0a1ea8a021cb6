"""Previews and runs of retention."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby

from catalog_service.catalog.revision_store import StateReader
from catalog_service.model.installers import Downloads
from catalog_service.model.releases import VersionRelease
from catalog_service.outgoing.upload_service import UploadService
from catalog_service.releases.gates import Facts
from catalog_service.releases.policy import Policy
from catalog_service.releases.store import MongoReleaseStore
from catalog_service.releases.transitions import delete, resume, retire
from catalog_service.retention.plan import Preview, StoredVersion, plan, reason_of
from catalog_service.retention.store import MongoRetentionStore
from catalog_service.versions.service import Versions
from catalog_service.versions.store import HIDE
from common.auth.internal_tokens import Caller
from common.concurrency.background import running, with_each
from common.concurrency.lease import keep_lease
from common.errors import Unavailable
from common.mongo import Document
from common.telemetry import log
from common.tenants import Tenant

RENEWAL = 15.0  # seconds; a lease lasts 60
PLANS = 5  # that a run makes while the catalog changes


class Retention:
    """Says which versions go, and lets them go in two steps."""

    def __init__(
        self,
        store: MongoRetentionStore,
        find_policy: Callable[[str], Awaitable[Policy]],
        read_state: StateReader,
        releases: MongoReleaseStore,
        deliver: Callable[[], Awaitable[None]],
        versions: Versions,
        installers: UploadService,
    ) -> None:
        """`find_policy` is a method of the store of policies, `deliver` tells the audit log what is due."""
        self._store = store
        self._find_policy = find_policy
        self._read_state = read_state
        self._releases = releases
        self._deliver = deliver
        self._versions = versions
        self._installers = installers

    async def preview(self, caller: Caller) -> Preview:
        """Return what a run does now. Raises Unavailable, also if a rule needs downloads and nobody can tell them."""
        return await self._preview(caller, await self._store.now())

    async def run_due(self) -> None:
        """Run retention for each tenant that had no run today, each in one replica at a time."""
        while run := await self._store.acquire_run():
            await with_each("retention", [run], self._run_leased)

    async def _run_leased(self, run: tuple[str, str]) -> None:
        renew = partial(self._store.renew_run, *run)
        async with keep_lease(renew, RENEWAL, tenant_id=run[0]) as renewal, running(self._run(*run)) as work:
            await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work

    async def _run(self, tenant_id: str, token: str) -> None:
        caller, now = Caller.service(Tenant(tenant_id)), await self._store.now()
        preview = await self._unchanged_preview(caller, now)
        over = [version for version, _ in preview.retired if version.deleted_at and version.deleted_at <= now]
        deleted = await self._change(tenant_id, over, delete, *HIDE)
        reasons = {version.package_id: reason_of(rule) for version, rule in preview.expired}
        expired = [version for version, _ in preview.expired]
        retired = await self._change(tenant_id, expired, lambda version: retire(version, reasons[version.package_id]))
        resumed = await self._change(tenant_id, preview.resumed, _resume)
        await self._deliver()  # The documents of deleted versions stay until the audit log has their deletion.
        for version in over:
            if version.uid in deleted:
                await self._versions.delete(caller, version.package_id, [version.uid])
        await self._store.end_run(tenant_id, token, _midnight(now))
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
        for package_id, group in groupby(sorted(versions, key=_package_of), key=_package_of):
            fences = {version.uid: version.fence for version in group}
            changed += await self._releases.change_package(tenant_id, package_id, fences, step, *changes)
        return changed

    async def _unchanged_preview(self, caller: Caller, now: datetime) -> Preview:
        """A preview during which no change of the catalog ended. Raises Unavailable after several attempts."""
        for _ in range(PLANS):
            before = await self._read_state(caller.tenant_id, "")
            preview = await self._preview(caller, now)
            if (await self._read_state(caller.tenant_id, "")).revision == before.revision:
                return preview
        raise Unavailable("The catalog changes all the time; retention is tried again in a minute.")

    async def _preview(self, caller: Caller, now: datetime) -> Preview:
        tenant_id, today = caller.tenant_id, _midnight(now)
        revision = (await self._read_state(tenant_id, "")).stable_revision
        policy = await self._find_policy(tenant_id)
        versions = await self._store.versions(tenant_id)
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
        return await self._installers.last_downloads(caller, days + 2) if days else Downloads()


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _resume(version: VersionRelease) -> VersionRelease:
    return resume(Facts(version), "") if version.is_retired else version


def _package_of(version: StoredVersion) -> str:
    return version.package_id
