"""Previews and runs of retention."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial

from catalog_service.catalog.revision_store import StateReader
from catalog_service.model.installers import Downloads
from catalog_service.outgoing.auth_service import AuthService
from catalog_service.outgoing.upload_service import UploadService
from catalog_service.releases.policy import Policy
from catalog_service.retention.plan import Preview, plan, reason_of
from catalog_service.retention.store import Deletion, MongoRetentionStore
from catalog_service.versions.service import Versions
from common.auth.internal_tokens import Caller
from common.concurrency.background import running, with_each
from common.concurrency.lease import keep_lease
from common.errors import Unavailable
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
        versions: Versions,
        installers: UploadService,
        audit: AuthService,
    ) -> None:
        """`find_policy` is a method of the store of policies."""
        self._store = store
        self._find_policy = find_policy
        self._read_state = read_state
        self._versions = versions
        self._installers = installers
        self._audit = audit

    async def preview(self, caller: Caller) -> Preview:
        """Return what a run does now. Raises Unavailable, also if a rule needs downloads and nobody can tell them."""
        return await self._preview(caller, await self._store.now())

    async def run_due(self) -> None:
        """Run retention for each tenant that had no run today, each in one replica at a time."""
        await self._record_deletions()
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
        deleted = [each for each, _ in preview.retired if await self._store.begin_deletion(tenant_id, each)]
        expired = [(version, reason_of(rule)) for version, rule in preview.expired]
        retired = await self._store.retire(tenant_id, expired)
        resumed = await self._store.resume(tenant_id, preview.resumed)
        await self._record_deletions()
        for version in deleted:
            await self._versions.delete(caller, version.package_id, [version.uid])
        await self._store.end_run(tenant_id, token, _midnight(now))
        log.info("retention_ran", tenant_id=tenant_id, retired=retired, resumed=resumed, deleted=len(deleted))

    async def _unchanged_preview(self, caller: Caller, now: datetime) -> Preview:
        """A preview during which no change of the catalog ended. Raises Unavailable after several attempts."""
        for _ in range(PLANS):
            before = await self._read_state(caller.tenant_id, "")
            preview = await self._preview(caller, now)
            if (await self._read_state(caller.tenant_id, "")).revision == before.revision:
                return preview
        raise Unavailable("The catalog changes all the time; retention is tried again in a minute.")

    async def _record_deletions(self) -> None:
        """Send deletions to the audit log. The documents are not removed before; the next round tries again."""

        async def record(deletion: Deletion) -> None:
            tenant_id, uid, entries = deletion
            for entry in entries:
                await self._audit.record(Caller.service(Tenant(tenant_id)), entry)
            await self._store.mark_recorded(tenant_id, uid)

        await with_each("retention", await self._store.unrecorded_deletions(), record)

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
