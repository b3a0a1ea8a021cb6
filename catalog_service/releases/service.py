"""Moves versions through gates and rings: what administrators ask for, and what follows by itself."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby

from catalog_service.model.installers import FileChecks
from catalog_service.model.packages import VersionNotFound
from catalog_service.model.releases import Gate, Reason, VersionRelease, is_offered
from catalog_service.model.versions import newest_first
from catalog_service.outgoing.auth_service import AuthService
from catalog_service.outgoing.upload_service import CHECKS_BATCH, UploadService
from catalog_service.releases import transitions
from catalog_service.releases.gates import FAILED_SIGNATURES, Facts, gates_of, kinds
from catalog_service.releases.policy import Policy, is_same_name, unknown_ring
from catalog_service.releases.policy_edits import edited
from catalog_service.releases.policy_store import MongoPolicyStore
from catalog_service.releases.store import (
    EARLIER,
    EarlierVersion,
    LastSigner,
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
from common.telemetry import log
from common.tenants import Tenant

LAPSED = {"expired", "untrusted"}  # A signature that was valid becomes so with another trust store.
ATTEMPTS = 10  # to change a version; each lost attempt is another change
BATCH = 200  # versions of one round
INFECTED = Reason(("scan_infected",))
Changed = tuple[Policy, VersionRelease]


class FactsReader:
    """Asks upload_service for the checks of many files at once. Remembers the signers of deleted versions."""

    def __init__(self, store: MongoReleaseStore, installers: UploadService) -> None:
        self._store = store
        self._installers = installers

    async def read(self, policy: Policy, versions: Sequence[VersionRelease]) -> Mapping[str, Facts]:
        """Return the facts of versions of one tenant, by uid. Raises Unavailable."""
        earlier = {
            version.uid: await self._store.earlier(version)
            for version in versions
            if Gate.SIGNATURE in checked_gates_ahead(policy, version)
        }
        uids = {version.uid for version in versions}.union(*({one.uid for one in ones} for ones, _ in earlier.values()))
        checks = await self._installers.checks(service_of(versions[0].tenant_id), sorted(uids))
        signers = {uid: signer_before(others, checks, last) for uid, (others, last) in earlier.items()}
        return {
            version.uid: Facts(version, checks.get(version.uid), signers.get(version.uid, "")) for version in versions
        }

    async def remember_signers(self, tenant_id: str, uids: Sequence[str]) -> None:
        """Remember the signers of versions that are being deleted, as far as they count. Raises Unavailable."""
        versions = await self._store.unremembered(tenant_id, uids)
        for package_id, group in groupby(sorted(versions, key=_package_of), key=_package_of):
            await self._remember_last(tenant_id, package_id, [*group])
        if versions:
            await self._store.mark_remembered(tenant_id, versions)

    async def _remember_last(self, tenant_id: str, package_id: str, versions: Sequence[EarlierVersion]) -> None:
        """Remember the signer of the highest rank. Most packages need the checks of one batch of files."""
        last = await self._store.last_signer(tenant_id, package_id)
        for start in range(0, len(versions), CHECKS_BATCH):
            batch = versions[start : start + CHECKS_BATCH]
            checks = await self._installers.checks(service_of(tenant_id), [version.uid for version in batch])
            for version in batch:
                if last and last.rank > version.rank:
                    return
                signer = signer_of(version, checks.get(version.uid))
                if signer is None and not await self._store.unremembered(tenant_id, [version.uid]):
                    continue  # Another process has remembered it meanwhile, and deleted its file.
                if signer != "":
                    last = await self._store.remember_signer(tenant_id, package_id, LastSigner(signer, version.rank))


class Releases:
    """Changes the releases of versions. Each change is tried again if another one came first.

    Every replica does the background work, because each step may be repeated.
    """

    def __init__(
        self,
        store: MongoReleaseStore,
        policies: MongoPolicyStore,
        versions: MongoVersionStore,
        installers: UploadService,
        audit: AuthService,
    ) -> None:
        self._store = store
        self._policies = policies
        self._versions = versions
        self._installers = installers
        self._audit = audit
        self._facts = FactsReader(store, installers)

    async def control_of_new(self, tenant_id: str) -> tuple[bool, bool]:
        """Whether a new version begins before the first ring, and whether nobody downloads its file before its scan."""
        policy = await self._policies.find(tenant_id)
        return policy.is_controlled, policy.has_scan

    async def begin(self, tenant_id: str, uid: str) -> None:
        """Let a new version enter the rings that are open to it; the loop does that if it is not possible now."""
        try:
            await self._advance(tenant_id, [await self._store.find(tenant_id, uid)])
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

    async def find(self, caller: Caller, uid: str) -> Changed:
        """Raises VersionNotFound."""
        version = await self._store.find(caller.tenant_id, uid)
        return await self._policies.find(caller.tenant_id), version

    async def page(self, caller: Caller, query: ReleaseQuery) -> tuple[Policy, Sequence[VersionRelease], int]:
        """Return a page of releases, and the number of releases on all pages."""
        versions, total = await self._store.page(caller.tenant_id, query)
        return await self._policies.find(caller.tenant_id), versions, total

    async def approve(self, caller: Caller, uid: str) -> Changed:
        """Approve a version's file. Raises VersionNotFound, OwnVersion."""
        return await self._change(caller, uid, lambda _, facts: transitions.approve(facts.version, caller.person))

    async def promote(self, caller: Caller, uid: str, ring: str) -> Changed:
        """Let a version into a ring. Raises VersionNotFound, InvalidField, VersionStopped, GateWaiting, Unavailable."""
        step = partial(transitions.promote, ring=ring, by=caller.username)
        return await self._change(caller, uid, step, needs_checks=checked_gates_ahead)

    async def pause(self, caller: Caller, uid: str) -> Changed:
        """Stop a version where it is. Raises VersionNotFound, VersionStopped."""
        return await self._change(caller, uid, lambda _, facts: transitions.pause(facts.version, caller.username))

    async def resume(self, caller: Caller, uid: str) -> Changed:
        """End a stop. Raises VersionNotFound, VersionInfected, Unavailable."""
        return await self._change(
            caller,
            uid,
            lambda _, facts: transitions.resume(facts, caller.username),
            needs_checks=lambda _, version: version.is_withdrawn and not version.is_external,
        )

    async def hold(self, caller: Caller, uid: str, reason: str) -> Changed:
        """Withdraw a version from all rings. Raises VersionNotFound, Unavailable if its file is not withheld yet."""
        given = Reason.given(reason)
        return await self._change(caller, uid, lambda _, facts: transitions.hold(facts.version, caller.username, given))

    async def roll_back(self, caller: Caller, uid: str, reason: str) -> tuple[*Changed, Mapping[str, str]]:
        """Withdraw a version. Also return the newest version of its channel that each ring gets now, "" for none.

        Raises VersionNotFound, Unavailable if its file is not withheld yet.
        """
        step, given = transitions.roll_back, Reason.given(reason)
        policy, version = await self._change(caller, uid, lambda _, facts: step(facts.version, caller.username, given))
        others = await self._versions.of_package(caller.tenant_id, version.package_id) or ()
        ordered = newest_first(other for other in others if other.channel == version.channel)
        rings = policy.effective_rings
        offered = {
            ring: next((each.version for each in ordered if is_offered(each.stage, ring, rings)), "") for ring in rings
        }
        return policy, version, offered

    async def pin(self, caller: Caller, uid: str, *, pinned: bool) -> Changed:
        """Protect a version from retention, or not. Raises as `resume` does if retention withdrew the version."""
        return await self._change(
            caller,
            uid,
            lambda _, facts: transitions.pin(facts, caller.username, pinned=pinned),
            needs_checks=lambda _, version: pinned and version.is_retired and not version.is_external,
        )

    async def run_due(self) -> None:
        """Look at the versions that are due, and record automatic changes in the audit log. Failures stay due."""
        by_tenant: dict[str, list[VersionRelease]] = defaultdict(list)
        for version in await self._store.due(BATCH):
            by_tenant[version.tenant_id].append(version)

        async def advance(tenant_id: str) -> None:
            versions = [await self._record(version) for version in by_tenant[tenant_id]]
            for version in versions:
                if version.is_deleted and not version.release.unaudited:
                    await self._store.mark_audited(version)
            await self._advance(tenant_id, [version for version in versions if not version.is_deleted])

        await with_each("releases", by_tenant, advance)

    async def hold_infected(self) -> None:
        """Hold the versions in rings whose files turned out to be infected, of all tenants with a scan gate."""

        def step(_: Policy, facts: Facts) -> VersionRelease:
            in_ring = facts.version.rings and not facts.version.is_withdrawn
            return transitions.hold(facts.version, "", INFECTED) if in_ring else facts.version

        async def hold(version: tuple[Caller, str]) -> None:
            with suppress(VersionNotFound):  # It is being deleted.
                await self._change(*version, step)

        async def hold_all(tenant_id: str) -> None:
            service = service_of(tenant_id)
            await with_each("infected", [(service, uid) for uid in await self._installers.infected(service)], hold)

        await with_each("infected", await self._policies.with_scan(), hold_all)

    async def _change(
        self,
        caller: Caller,
        uid: str,
        step: Callable[[Policy, Facts], VersionRelease],
        needs_checks: Callable[[Policy, VersionRelease], object] = lambda _policy, _version: False,
    ) -> Changed:
        """Take a step, which gets the checks of the file only if it needs them."""
        for _ in range(ATTEMPTS):
            version = await self._store.find(caller.tenant_id, uid)
            caller.require_package(version.package_id)
            policy = await self._policies.find(caller.tenant_id)  # read after the version, see `MongoPolicyStore.edit`
            facts = Facts(version)
            if needs_checks(policy, version):
                facts = (await self._facts.read(policy, [version]))[uid]
            after = step(policy, facts)
            if after is not version:
                try:
                    (after,) = await self._advanced(policy, [after])
                    version = await self._store.save(version, after)
                except ReleaseChanged:
                    continue
            await self._tell(version)
            return policy, version
        raise ReleaseChanged

    async def _advance(self, tenant_id: str, versions: Sequence[VersionRelease]) -> None:
        """Look at versions of a tenant again, and store what changed. Raises Unavailable."""
        policy = await self._policies.find(tenant_id)  # read after the versions, see `MongoPolicyStore.edit`
        for version, after in zip(versions, await self._advanced(policy, versions), strict=True):
            with suppress(ReleaseChanged):  # The next round reads it again.
                await self._tell(await self._store.save(version, after))

    async def _advanced(self, policy: Policy, versions: Sequence[VersionRelease]) -> Sequence[VersionRelease]:
        """Let versions enter the rings that they enter by themselves; later, if their checks are not known now."""
        facts = {version.uid: Facts(version) for version in versions if not checked_gates_ahead(policy, version)}
        checked = [version for version in versions if version.uid not in facts]
        try:
            facts |= await self._facts.read(policy, checked) if checked else {}
        except Problem as problem:
            log.warning("releases_postponed", tenant_id=versions[0].tenant_id, error=problem.code)
        return [
            transitions.advance(policy, facts[version.uid]) if version.uid in facts else transitions.postpone(version)
            for version in versions
        ]

    async def _tell(self, version: VersionRelease) -> None:
        """Tell upload_service whether to withhold a file, if it does not know yet. Raises Unavailable."""
        if version.release.is_untold:
            withheld, fence = version.is_withheld, version.release.fence
            await self._installers.withhold(service_of(version.tenant_id), version.uid, fence, withheld=withheld)
            await self._store.mark_told(version)

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


def checked_gates_ahead(policy: Policy, version: VersionRelease) -> set[Gate]:
    """The gates before rings to come that depend on checks of the file."""
    if version.is_complete or version.is_withdrawn or version.is_external:
        return set()
    rings = policy.effective_rings[version.level(policy.effective_rings) + 1 :]
    return {gate for ring in rings for gate in kinds(gates_of(policy, ring), version.package_id)} & CHECKED


def service_of(tenant_id: str) -> Caller:
    """A service that acts for a tenant."""
    return Caller.service(Tenant(tenant_id))


def _package_of(version: EarlierVersion) -> str:
    return version.package_id
