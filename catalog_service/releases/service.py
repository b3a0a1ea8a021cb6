"""Moves versions through gates and rings: what administrators ask for, and what follows by itself."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from catalog_service.model.installers import FileChecks
from catalog_service.model.packages import VersionNotFound
from catalog_service.model.releases import Gate, Reason, VersionRelease, is_offered
from catalog_service.model.versions import VersionEdit, newest_first
from catalog_service.outgoing.upload_service import CHECKS_BATCH, UploadService
from catalog_service.releases import transitions
from catalog_service.releases.effects import PolicyEffect
from catalog_service.releases.gates import FAILED_SIGNATURES, Facts, Policy, gates_of, is_same_name, kinds
from catalog_service.releases.policy_edits import edited
from catalog_service.releases.store import (
    EARLIER,
    EarlierVersion,
    LastSigner,
    MongoPolicyStore,
    MongoReleaseStore,
    ReleaseChanged,
    ReleaseQuery,
)
from catalog_service.releases.transitions import CHECKED
from catalog_service.versions.store import MongoVersionStore
from common.auth.internal_tokens import Caller
from common.concurrency.background import with_each
from common.errors import Problem
from common.mongo import MongoError
from common.redis import RedisError
from common.service_client.client import ServiceClient
from common.telemetry import log
from common.tenants import ALL_TENANTS, Tenant, unknown_ring

LAPSED = {"expired", "untrusted"}  # A signature that was valid becomes so with another trust store.
ATTEMPTS = 10  # to change a version; each lost attempt is another change
BATCH = 200  # versions of one round
PREVIEWED = 10_000  # versions in flight at which the preview of a policy looks
INFECTED = Reason(("scan_infected",))
Changed = tuple[Policy, VersionRelease]


def checked_gates_ahead(policy: Policy, version: VersionRelease) -> set[Gate]:
    """The gates before rings to come that depend on checks of the file."""
    if version.is_complete or version.is_withdrawn or version.is_external:
        return set()
    rings = policy.effective_rings[version.level(policy.effective_rings) + 1 :]
    return {gate for ring in rings for gate in kinds(gates_of(policy, ring), version.package_id)} & CHECKED


def _is_stoppable(_: Policy, version: VersionRelease) -> bool:
    return not version.is_withdrawn


def _may_offer_more(before: Policy, after: Policy) -> bool:
    """Whether an edit may offer a version to machines that do not get it under the policy before."""
    return before.is_controlled and (before.rings, before.gates) != (after.rings, after.gates)


def _may_be_offered(policy: Policy, version: VersionRelease) -> bool:
    """Whether a machine gets the version, or may get it without a clean scan."""
    waits = not version.rings and gates_of(policy, policy.effective_rings[0]).scan
    return not (version.is_withdrawn or waits)


def service_of(tenant_id: str) -> Caller:
    """A service that acts for a tenant."""
    return Caller.service(Tenant(tenant_id))


def _needs_none(_: Policy, __: VersionRelease) -> bool:
    return False


# The steps that administrators take with a version, by the names of the operations without `_version`.
STEPS: Mapping[str, Callable[..., VersionRelease]] = {
    "approve": lambda _, facts, caller, edited_at: transitions.approve(facts.version, caller.person, edited_at),
    "promote": lambda policy, facts, caller, ring: transitions.promote(policy, facts, ring, caller.username),
    "pause": lambda _, facts, caller: transitions.pause(facts.version, caller.username),
    "resume": lambda _, facts, caller: transitions.resume(facts, caller.username),
    "hold": lambda _, facts, caller, reason: transitions.hold(facts.version, caller.username, Reason.given(reason)),
    "roll_back": lambda _, facts, caller, reason: transitions.roll_back(
        facts.version, caller.username, Reason.given(reason)
    ),
    "pin": lambda _, facts, caller, pinned: transitions.pin(facts, caller.username, pinned=pinned),
}
# The versions whose files' checks these steps need.
NEEDS_CHECKS: Mapping[str, Callable[[Policy, VersionRelease], object]] = {
    "promote": checked_gates_ahead,
    "resume": lambda _, version: version.is_withdrawn and not version.is_external,
    "pin": lambda _, version: version.is_retired and not version.is_external,
}


@dataclass(frozen=True)
class Releases:
    """Changes the releases of versions. Each change is tried again if another one came first.

    Every replica does the background work, because each step may be repeated.
    """

    store: MongoReleaseStore
    policies: MongoPolicyStore
    versions: MongoVersionStore
    installers: UploadService
    auth_service: ServiceClient  # It has the audit log.

    async def control_of_new(self, tenant_id: str) -> tuple[bool, bool]:
        """Whether a new version begins before the first ring, and whether nobody downloads its file before its scan."""
        policy = await self.policies.find(tenant_id)
        return policy.is_controlled, policy.has_scan

    async def begin(self, tenant_id: str, uid: str) -> None:
        """Let a new version enter the rings that are open to it; the loop does that if it is not possible now."""
        try:
            await self._advance(tenant_id, [await self.store.find(tenant_id, uid)])
        except (Problem, MongoError, RedisError) as error:
            log.warning("release_postponed", tenant_id=tenant_id, uid=uid, error=type(error).__name__)

    async def check_ring(self, tenant_id: str, ring: str) -> None:
        """Raise InvalidField for a ring that the tenant does not have."""
        if ring not in (rings := await self.policies.rings(tenant_id)):
            raise unknown_ring("ring", rings)

    async def edit_policy(self, tenant_id: str, fields: Mapping[str, str]) -> tuple[Policy, Policy]:
        """Change the policy; return it before and after. Raises InvalidField, or Unavailable.

        Infected versions are held before, so that no version is offered that only a gate kept from the machines.
        """
        before = await self.policies.find(tenant_id)
        if _may_offer_more(before, edited(before, fields)):
            for _, uid in await self.installers.infected(service_of(tenant_id)):
                await self._hold_infected(tenant_id, uid, _is_stoppable)
        return await self.policies.edit(tenant_id, lambda policy: edited(policy, fields))

    async def preview_policy(self, tenant_id: str, fields: Mapping[str, str]) -> PolicyEffect:
        """Return what `edit_policy` would do, and change nothing. Raises as it does."""
        before = await self.policies.find(tenant_id)
        after = edited(before, fields)
        effect = PolicyEffect(before, after)
        if not _may_offer_more(before, after):
            return effect
        infected = {uid for _, uid in await self.installers.infected(service_of(tenant_id))}
        for offset in range(0, PREVIEWED, BATCH):
            query = ReleaseQuery(in_flight=True, package_id="", offset=offset, limit=BATCH)
            versions, _ = await self.store.page(tenant_id, query)
            effect.held += [each for each in versions if each.uid in infected and _is_stoppable(after, each)]
            others = [each for each in versions if each.uid not in infected]
            for version, changed in zip(others, await self._advanced(after, others) if others else (), strict=True):
                effect.add(version, changed)
            if len(versions) < BATCH:
                break
        return effect

    async def find(self, caller: Caller, uid: str) -> Changed:
        """Raises VersionNotFound."""
        version = await self.store.find(caller.tenant_id, uid)
        return await self.policies.find(caller.tenant_id), version

    async def page(self, caller: Caller, query: ReleaseQuery) -> tuple[Policy, Sequence[VersionRelease], int]:
        """Return a page of releases, and the number of releases on all pages."""
        versions, total = await self.store.page(caller.tenant_id, query)
        return await self.policies.find(caller.tenant_id), versions, total

    async def change(
        self, caller: Caller, uid: str, operation: str, *, preview: bool = False, **fields: Any
    ) -> Changed:
        """Take a step of `STEPS`, with the fields of its form. A `preview` returns the same and changes nothing.

        Raises VersionNotFound, Unavailable if the file is not withheld yet or its checks are needed, and the errors of
        the step.
        """
        step = partial(STEPS[operation], caller=caller, **fields)
        return await self._change(caller, uid, step, NEEDS_CHECKS.get(operation, _needs_none), preview=preview)

    async def edit(
        self, caller: Caller, uid: str, read: Callable[[VersionRelease], Awaitable[VersionEdit]]
    ) -> VersionEdit:
        """Change a version's record. `read` is called again if another change came first; raises what it raises.

        Raises VersionNotFound, VersionApproved, or VersionExists.
        """
        for _ in range(ATTEMPTS):
            version = await self.store.find(caller.tenant_id, uid)
            caller.require_package(version.package_id)
            policy = await self.policies.find(caller.tenant_id)  # read after the version, see `MongoPolicyStore.edit`
            edit = await read(version)  # Its fence is read before, so no other edit is lost.
            if edit.before == edit.after:
                return edit
            reason = Reason(("fields",), {"fields": ", ".join(edit.texts)})
            after = version.with_event("edited", caller.username, reason=reason)
            if not edit.is_of_texts:
                (after,) = await self._advanced(policy, [transitions.edit(policy, after, caller.person)])
            with suppress(ReleaseChanged):
                await self._tell(await self.store.save_edited(version, after, edit))
                return edit
        raise ReleaseChanged

    async def offered(self, policy: Policy, version: VersionRelease) -> Mapping[str, str]:
        """Return the newest version of the channel that each ring gets with this version as it is here, "" for none."""
        others = await self.versions.of_package(version.tenant_id, version.package_id) or ()
        ordered = newest_first(other for other in others if other.channel == version.channel)
        stages = [(each.version, version.stage if each.uid == version.uid else each.stage) for each in ordered]
        rings = policy.effective_rings
        return {ring: next((name for name, stage in stages if is_offered(stage, ring, rings)), "") for ring in rings}

    async def run_due(self) -> None:
        """Look at the versions that are due, and record automatic changes in the audit log. Failures stay due."""
        by_tenant: dict[str, list[VersionRelease]] = defaultdict(list)
        for version in await self.store.due(BATCH):
            by_tenant[version.tenant_id].append(version)

        async def advance(tenant_id: str) -> None:
            versions = [await self._record(version) for version in by_tenant[tenant_id]]
            for version in versions:
                if version.is_deleted:
                    await self.store.save_audited(version)
            await self._advance(tenant_id, [version for version in versions if not version.is_deleted])

        await with_each("releases", by_tenant, advance)

    async def hold_infected(self) -> None:
        """Hold the versions of all tenants whose files turned out to be infected, and that a machine may get.

        A version before a first ring with a scan gate is not one: it waits for another verdict.
        """

        async def hold(version: tuple[str, str]) -> None:
            await self._hold_infected(*version, _may_be_offered)

        found = await self.installers.infected(service_of(ALL_TENANTS))
        await with_each("infected", found, hold)

    async def _hold_infected(
        self, tenant_id: str, uid: str, condition: Callable[[Policy, VersionRelease], bool]
    ) -> None:
        def step(policy: Policy, facts: Facts) -> VersionRelease:
            return transitions.hold(facts.version, "", INFECTED) if condition(policy, facts.version) else facts.version

        with suppress(VersionNotFound):  # It is being deleted.
            await self._change(service_of(tenant_id), uid, step)

    async def remember_signers(self, tenant_id: str, uids: Sequence[str]) -> None:
        """Remember the signers of versions that are being deleted, as far as they count. Raises Unavailable."""
        versions = await self.store.unremembered(tenant_id, uids)
        for package_id, group in groupby(sorted(versions, key=_package_of), key=_package_of):
            await self._remember_last(tenant_id, package_id, [*group])
        if versions:
            await self.store.mark_remembered(tenant_id, versions)

    async def _remember_last(self, tenant_id: str, package_id: str, versions: Sequence[EarlierVersion]) -> None:
        """Remember the signer of the highest rank. Most packages need the checks of one batch of files."""
        last = await self.store.last_signer(tenant_id, package_id)
        for start in range(0, len(versions), CHECKS_BATCH):
            batch = versions[start : start + CHECKS_BATCH]
            checks = await self.installers.checks(service_of(tenant_id), [version.uid for version in batch])
            for version in batch:
                if last and last.rank > version.rank:
                    return
                signer = signer_of(version, checks.get(version.uid))
                if signer is None and not await self.store.unremembered(tenant_id, [version.uid]):
                    continue  # Another process has remembered it meanwhile, and deleted its file.
                if signer != "":
                    last = await self.store.remember_signer(tenant_id, package_id, LastSigner(signer, version.rank))

    async def _change(
        self,
        caller: Caller,
        uid: str,
        step: Callable[[Policy, Facts], VersionRelease],
        needs_checks: Callable[[Policy, VersionRelease], object] = _needs_none,
        *,
        preview: bool = False,
    ) -> Changed:
        """Take a step, which gets the checks of the file only if it needs them. A `preview` stores nothing."""
        for _ in range(ATTEMPTS):
            version = await self.store.find(caller.tenant_id, uid)
            caller.require_package(version.package_id)
            policy = await self.policies.find(caller.tenant_id)  # read after the version, see `MongoPolicyStore.edit`
            facts = Facts(version)
            if needs_checks(policy, version):
                facts = (await self._read_facts(policy, [version]))[uid]
            after = step(policy, facts)
            if after is not version:
                try:
                    (after,) = await self._advanced(policy, [after])
                    if preview:
                        return policy, after
                    version = await self.store.save(version, after)
                except ReleaseChanged:
                    continue
            if not preview:
                await self._tell(version)
            return policy, version
        raise ReleaseChanged

    async def _advance(self, tenant_id: str, versions: Sequence[VersionRelease]) -> None:
        """Look at versions of a tenant again, and store what changed. Raises Unavailable."""
        policy = await self.policies.find(tenant_id)  # read after the versions, see `MongoPolicyStore.edit`
        for version, after in zip(versions, await self._advanced(policy, versions), strict=True):
            with suppress(ReleaseChanged):  # The next round reads it again.
                await self._tell(await self.store.save(version, after))

    async def _advanced(self, policy: Policy, versions: Sequence[VersionRelease]) -> Sequence[VersionRelease]:
        """Let versions enter the rings that they enter by themselves; later, if their checks are not known now."""
        facts = {version.uid: Facts(version) for version in versions if not checked_gates_ahead(policy, version)}
        checked = [version for version in versions if version.uid not in facts]
        try:
            facts |= await self._read_facts(policy, checked) if checked else {}
        except Problem as problem:
            log.warning("releases_postponed", tenant_id=versions[0].tenant_id, error=problem.code)
        return [
            transitions.advance(policy, facts[version.uid]) if version.uid in facts else transitions.postpone(version)
            for version in versions
        ]

    async def _read_facts(self, policy: Policy, versions: Sequence[VersionRelease]) -> Mapping[str, Facts]:
        """Return the facts of versions of one tenant, by uid. Raises Unavailable."""
        earlier = {
            version.uid: await self.store.earlier(version)
            for version in versions
            if Gate.SIGNATURE in checked_gates_ahead(policy, version)
        }
        uids = {version.uid for version in versions}.union(*({one.uid for one in ones} for ones, _ in earlier.values()))
        checks = await self.installers.checks(service_of(versions[0].tenant_id), sorted(uids))
        signers = {uid: signer_before(others, checks, last) for uid, (others, last) in earlier.items()}
        return {
            version.uid: Facts(version, checks.get(version.uid), signers.get(version.uid, "")) for version in versions
        }

    async def _tell(self, version: VersionRelease) -> None:
        """Tell upload_service whether to withhold a file, if it does not know yet. Raises Unavailable."""
        if version.release.is_untold:
            withheld, fence = version.is_withheld, version.release.fence
            await self.installers.withhold(service_of(version.tenant_id), version.uid, fence, withheld=withheld)
            await self.store.mark_told(version)

    async def _record(self, version: VersionRelease) -> VersionRelease:
        """Record a version's automatic changes in the audit log. Return it with those that are not recorded yet."""
        entries = version.release.unaudited
        try:
            while entries:
                await self.auth_service.json(service_of(version.tenant_id), "record_audit", entries[0])
                entries = entries[1:]
        except Problem as problem:
            log.warning("audit_delayed", tenant_id=version.tenant_id, uid=version.uid, detail=problem.detail)
        return replace(version, release=replace(version.release, unaudited=entries))


def signer_before(
    earlier: Sequence[EarlierVersion], checks: Mapping[str, FileChecks], last: LastSigner | None
) -> str | None:
    """The signer of the highest rank among signed versions, "" if none is signed, None if that is not known.

    `last` is the signer of deleted versions. Different signers of one rank are one that is not known.
    """
    signers = [LastSigner(signer_of(version, checks.get(version.uid)), version.rank) for version in earlier]
    signers = [signer for signer in (*signers, last) if signer and signer.signer != ""]
    highest = max((signer.rank for signer in signers), default=-1)
    if len(earlier) == EARLIER and highest <= earlier[-1].rank:
        return None  # There may be more versions.
    names = [signer.signer for signer in signers if signer.rank == highest]
    if not names:
        return ""
    first = names[0]
    return first if first and all(name and is_same_name(name, first) for name in names) else None


def signer_of(version: EarlierVersion, checks: FileChecks | None) -> str | None:
    """The signer of a file, "" if it is not signed, None if that is not known."""
    if checks is None or checks.sha256 != version.sha256:
        return None
    signature = checks.signature
    if signature.state == "valid" or (signature.state in LAPSED and signature.signer):
        return signature.signer or None
    return "" if signature.state in FAILED_SIGNATURES else None


def _package_of(version: EarlierVersion) -> str:
    return version.package_id
