"""Moves versions through gates and rings: what administrators ask for, and what follows by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from catalog_service.model.ordering import newest_first
from catalog_service.model.releases import Reason, VersionRelease
from catalog_service.model.stages import ReleaseStatus, is_offered
from catalog_service.model.versions import PackageVersion
from catalog_service.outgoing.upload_service import UploadService
from catalog_service.releases import transitions
from catalog_service.releases.facts import FactsReader, checked_gates_ahead, service_of
from catalog_service.releases.gates import Facts
from catalog_service.releases.model import ReleaseChanged, ReleaseQuery, VersionInfected
from catalog_service.releases.policy import Policy, unknown_ring
from catalog_service.releases.policy_edits import edited
from catalog_service.releases.policy_store import MongoPolicyStore
from catalog_service.releases.store import MongoReleaseStore
from catalog_service.versions.store import MongoVersionStore
from common.auth.internal_tokens import Caller
from common.errors import Problem
from common.mongo import MongoError
from common.redis import RedisError
from common.telemetry import log

ATTEMPTS = 10  # to change a version; each lost attempt is another change
INFECTED = Reason(("scan_infected",))
Step = Callable[[Policy, VersionRelease], Awaitable[VersionRelease]]


class Releases:
    """Changes the releases of versions. Each change is tried again if another one came first."""

    def __init__(
        self,
        store: MongoReleaseStore,
        policies: MongoPolicyStore,
        versions: MongoVersionStore,
        installers: UploadService,
    ) -> None:
        self._store = store
        self._policies = policies
        self._versions = versions
        self._installers = installers
        self._facts = FactsReader(store, installers)

    async def prepare(self, tenant_id: str, version: PackageVersion) -> bool:
        """Whether a new version begins before the first ring. Its file is withheld if a scan gate is on its way.

        Raises Unavailable.
        """
        policy = await self._policies.find(tenant_id)
        if policy.has_scan and version.server_filename:
            await self._installers.withhold(service_of(tenant_id), version.uid, 0, withheld=True)
        return policy.is_controlled

    async def begin(self, tenant_id: str, uid: str) -> None:
        """Let a new version enter the rings that are open to it; the loop does that if it is not possible now."""
        try:
            await self.advance(tenant_id, [await self._store.find(tenant_id, uid)])
        except (Problem, MongoError, RedisError) as error:
            log.warning("release_postponed", tenant_id=tenant_id, uid=uid, error=type(error).__name__)

    async def remember_signers(self, tenant_id: str, uids: Sequence[str]) -> None:
        """Remember the signers of versions that are being deleted, for later versions. Raises Unavailable."""
        await self._facts.remember_signers(tenant_id, uids)

    async def policy(self, tenant_id: str) -> Policy:
        return await self._policies.find(tenant_id)

    async def check_ring(self, tenant_id: str, ring: str) -> None:
        """Raise InvalidField for a ring that the tenant does not have."""
        if ring not in (rings := await self._policies.rings(tenant_id)):
            raise unknown_ring("ring", rings)

    async def edit_policy(self, tenant_id: str, fields: Mapping[str, str]) -> tuple[Policy, Policy]:
        """Change the policy; return it before and after. Raises InvalidField."""
        return await self._policies.edit(tenant_id, lambda policy: edited(policy, fields))

    async def find(self, caller: Caller, uid: str) -> tuple[Policy, VersionRelease]:
        """Raises VersionNotFound."""
        version, policy = await asyncio.gather(
            self._store.find(caller.tenant_id, uid), self._policies.find(caller.tenant_id)
        )
        return policy, version

    async def page(self, caller: Caller, query: ReleaseQuery) -> tuple[Policy, Sequence[VersionRelease], int]:
        """Return a page of releases, and the number of releases on all pages."""
        versions, total = await self._store.page(caller.tenant_id, query)
        return await self._policies.find(caller.tenant_id), versions, total

    async def approve(self, caller: Caller, uid: str) -> tuple[Policy, VersionRelease]:
        """Approve a version's file. Raises VersionNotFound, OwnVersion."""
        return await self._change(caller, uid, _plain(lambda version: transitions.approve(version, caller.person)))

    async def promote(self, caller: Caller, uid: str, ring: str) -> tuple[Policy, VersionRelease]:
        """Let a version into a ring. Raises VersionNotFound, InvalidField, VersionStopped, GateWaiting, Unavailable."""

        async def step(policy: Policy, version: VersionRelease) -> VersionRelease:
            if ring not in policy.effective_rings:
                raise unknown_ring("ring", policy.effective_rings)
            facts = await self._facts.read(policy, [version])
            return transitions.promote(policy, facts[version.uid], ring, caller.username)

        return await self._change(caller, uid, step)

    async def pause(self, caller: Caller, uid: str) -> tuple[Policy, VersionRelease]:
        """Stop a version where it is. Raises VersionNotFound, VersionStopped."""
        return await self._change(caller, uid, _plain(lambda version: transitions.pause(version, caller.username)))

    async def resume(self, caller: Caller, uid: str) -> tuple[Policy, VersionRelease]:
        """End a stop. Raises VersionNotFound, VersionInfected, Unavailable."""

        async def step(_: Policy, version: VersionRelease) -> VersionRelease:
            await self._refuse_infected(version)
            return transitions.resume(version, caller.username)

        return await self._change(caller, uid, step)

    async def hold(self, caller: Caller, uid: str, reason: str) -> tuple[Policy, VersionRelease]:
        """Withdraw a version from all rings. Raises VersionNotFound, Unavailable if its file is not withheld yet."""
        step = _plain(lambda version: transitions.hold(version, caller.username, Reason.given(reason)))
        return await self._change(caller, uid, step)

    async def hold_infected(self, tenant_id: str, uid: str) -> None:
        """Withdraw a version in a ring whose file turned out to be infected. Raises as `hold` does."""

        def step(version: VersionRelease) -> VersionRelease:
            in_ring = version.rings and not version.is_withdrawn
            return transitions.hold(version, "", INFECTED) if in_ring else version

        await self._change(service_of(tenant_id), uid, _plain(step))

    async def roll_back(
        self, caller: Caller, uid: str, reason: str
    ) -> tuple[Policy, VersionRelease, Mapping[str, str]]:
        """Withdraw a version. Also return the newest version of its channel that each ring gets now, "" for none.

        Raises VersionNotFound, Unavailable if its file is not withheld yet.
        """
        step = _plain(lambda version: transitions.roll_back(version, caller.username, Reason.given(reason)))
        policy, version = await self._change(caller, uid, step)
        others = await self._versions.of_package(caller.tenant_id, version.package_id) or ()
        ordered = newest_first(other for other in others if other.channel == version.channel)
        rings = policy.effective_rings
        offered = {
            ring: next((each.version for each in ordered if is_offered(each.stage, ring, rings)), "") for ring in rings
        }
        return policy, version, offered

    async def pin(self, caller: Caller, uid: str, *, pinned: bool) -> tuple[Policy, VersionRelease]:
        """Protect a version from retention, or not. Raises as `resume` does if retention withdrew the version."""

        async def step(_: Policy, version: VersionRelease) -> VersionRelease:
            if pinned and version.status is ReleaseStatus.RETIRED:
                await self._refuse_infected(version)
            return transitions.pin(version, caller.username, pinned=pinned)

        return await self._change(caller, uid, step)

    async def advance(self, tenant_id: str, versions: Sequence[VersionRelease]) -> None:
        """Look at versions of a tenant again, and store what changed. Raises Unavailable."""
        policy = await self._policies.find(tenant_id)  # read after the versions, see `MongoPolicyStore.edit`
        for version, after in zip(versions, await self._advanced(policy, versions), strict=True):
            try:
                await self._tell(await self._store.save(version, after))
            except ReleaseChanged:
                continue  # The next round reads it again.

    async def _change(self, caller: Caller, uid: str, step: Step) -> tuple[Policy, VersionRelease]:
        for _ in range(ATTEMPTS):
            version = await self._store.find(caller.tenant_id, uid)
            caller.require_package(version.package_id)
            policy = await self._policies.find(caller.tenant_id)  # read after the version, see `MongoPolicyStore.edit`
            after = await step(policy, version)
            if after is not version:
                try:
                    (after,) = await self._advanced(policy, [after])
                    version = await self._store.save(version, after)
                except ReleaseChanged:
                    continue
            await self._tell(version)
            return policy, version
        raise ReleaseChanged

    async def _advanced(self, policy: Policy, versions: Sequence[VersionRelease]) -> Sequence[VersionRelease]:
        """Let versions enter the rings that they enter by themselves; later, if their checks are not known now."""
        try:
            facts = await self._facts.read(policy, versions)
        except Problem as problem:
            log.warning("releases_postponed", tenant_id=versions[0].tenant_id, error=problem.code)
            facts = {each.uid: Facts(each) for each in versions if not checked_gates_ahead(policy, each)}
        return [
            transitions.advance(policy, facts[version.uid]) if version.uid in facts else transitions.postpone(version)
            for version in versions
        ]

    async def _refuse_infected(self, version: VersionRelease) -> None:
        """Raises VersionInfected if the version is withdrawn and its file is infected, or Unavailable."""
        if version.is_withdrawn and not version.is_external:
            checks = (await self._installers.checks(service_of(version.tenant_id), [version.uid])).get(version.uid)
            if checks and checks.sha256 == version.sha256 and checks.scan.state == "infected":
                raise VersionInfected

    async def _tell(self, version: VersionRelease) -> None:
        """Tell upload_service whether to withhold a file, if it does not know yet. Raises Unavailable."""
        if version.release.is_untold:
            withheld, fence = version.is_withheld, version.release.fence
            await self._installers.withhold(service_of(version.tenant_id), version.uid, fence, withheld=withheld)
            await self._store.mark_told(version)


def _plain(step: Callable[[VersionRelease], VersionRelease]) -> Step:
    """A step that needs no facts."""

    async def run(_: Policy, version: VersionRelease) -> VersionRelease:
        return step(version)

    return run
