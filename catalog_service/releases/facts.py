"""Reads the facts for the gates before versions: the checks of their files, and the signers of earlier versions.

The signer of an earlier version is remembered before its file is deleted.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

from catalog_service.model.installers import FileChecks
from catalog_service.model.releases import Gate, VersionRelease
from catalog_service.outgoing.upload_service import CHECKS_BATCH, UploadService
from catalog_service.releases.gates import FAILED_SIGNATURES, Facts, gates_of, kinds
from catalog_service.releases.model import EarlierVersion, LastSigner
from catalog_service.releases.policy import Policy, is_same_name
from catalog_service.releases.store import EARLIER, MongoReleaseStore
from catalog_service.releases.transitions import CHECKED
from common.auth.internal_tokens import Caller
from common.tenants import Tenant

LAPSED = {"expired", "untrusted"}  # A signature that was valid becomes so with another trust store.


class FactsReader:
    """Asks upload_service for the checks of many files at once, and only if a gate needs them."""

    def __init__(self, store: MongoReleaseStore, installers: UploadService) -> None:
        self._store = store
        self._installers = installers

    async def read(self, policy: Policy, versions: Sequence[VersionRelease]) -> Mapping[str, Facts]:
        """Return the facts of versions of one tenant, by uid. Raises Unavailable."""
        gates = {version.uid: checked_gates_ahead(policy, version) for version in versions}
        earlier = {
            version.uid: await self._store.earlier(version)
            for version in versions
            if Gate.SIGNATURE in gates[version.uid]
        }
        uids = {uid for uid in gates if gates[uid]} | {other.uid for others, _ in earlier.values() for other in others}
        checks: Mapping[str, FileChecks] = {}
        if uids:
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
