"""Reads the facts for the gates before versions: the checks of their files, and the signers of earlier versions."""

from collections.abc import Mapping, Sequence

from catalog_service.model.releases import Gate, VersionRelease
from catalog_service.outgoing.upload_service import UploadService
from catalog_service.releases.gates import FAILED_SIGNATURES, Facts, gates_of, kinds
from catalog_service.releases.model import FileChecks
from catalog_service.releases.policy import Policy
from catalog_service.releases.store import EARLIER, MongoReleaseStore
from catalog_service.releases.transitions import CHECKED
from common.auth.internal_tokens import Caller
from common.tenants import Tenant


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
        uids = {uid for uid in gates if gates[uid]} | {other.uid for others in earlier.values() for other in others}
        checks: Mapping[str, FileChecks] = {}
        if uids:
            checks = await self._installers.checks(service_of(versions[0].tenant_id), sorted(uids))

        return {
            version.uid: Facts(version, checks.get(version.uid), signer_before(earlier.get(version.uid, ()), checks))
            for version in versions
        }


def signer_before(earlier: Sequence[VersionRelease], checks: Mapping[str, FileChecks]) -> str | None:
    """The signer of the first of these versions that is signed, "" if none is, None if that is not known."""
    for version in earlier:
        found = checks.get(version.uid)
        if found is None or found.sha256 != version.sha256:
            return None
        if found.signature.state not in FAILED_SIGNATURES:
            return found.signature.signer if found.signature.state == "valid" else None
    return "" if len(earlier) < EARLIER else None


def checked_gates_ahead(policy: Policy, version: VersionRelease) -> set[Gate]:
    """The gates before rings to come that depend on checks of the file."""
    if version.is_complete or version.is_withdrawn or version.is_external:
        return set()
    rings = policy.effective_rings[version.level(policy.effective_rings) + 1 :]
    return {gate for ring in rings for gate in kinds(gates_of(policy, ring), version.package_id)} & CHECKED


def service_of(tenant_id: str) -> Caller:
    """A service that acts for a tenant."""
    return Caller.service(Tenant(tenant_id))
