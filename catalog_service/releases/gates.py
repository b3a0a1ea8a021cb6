"""The gates before the rings of a tenant: pure functions of the policy, the version, its record and its file's checks.

A gate passes only if it knows that it may. An unknown state, a missing answer and a check of another file wait.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from catalog_service.model.installers import FileChecks, Signature
from catalog_service.model.releases import Gate, GateState, GateStatus, VersionRelease
from catalog_service.model.stages import ReleaseStatus
from catalog_service.releases.policy import Gates, Policy, SignatureRule, is_same_name
from common.auth.package_patterns import matches

NO_GATES = Gates()
SHOWN_LIMIT = 500  # characters
FAILED_SIGNATURES = {"unsigned", "invalid", "untrusted", "expired", "unsupported"}


@dataclass(frozen=True)
class Facts:
    """The facts beside the policy. `checks` is None if upload_service knows no such file, or does not answer.

    `previous_signer` signed the version of the package before, "" if none is signed, None if that is not known.
    """

    version: VersionRelease
    checks: FileChecks | None = None
    previous_signer: str | None = ""


def gates_of(policy: Policy, ring: str) -> Gates:
    return policy.gates.get(ring, NO_GATES)


def kinds(gates: Gates, package_id: str) -> Sequence[Gate]:
    """The gates that a version of a package finds before a ring."""
    is_there = {
        Gate.APPROVAL: gates.approvals > 0,
        Gate.AGE: gates.age_days > 0,
        Gate.SCAN: gates.scan,
        Gate.SIGNATURE: signature_rule(gates, package_id) is not None,
    }
    return [gate for gate, value in is_there.items() if value]


def signature_rule(gates: Gates, package_id: str) -> SignatureRule | None:
    """The first rule that matches a package."""
    return next((rule for rule in gates.signature_rules if matches((rule.packages,), package_id)), None)


def evaluate(policy: Policy, facts: Facts) -> tuple[GateState, ...]:
    """Return the states of the gates before the rings that a version has not entered, with their last changes."""
    version, rings = facts.version, policy.effective_rings
    recorded = {(state.ring, state.gate): state for state in version.release.gates}
    states = []
    for position in range(version.level(rings) + 1, len(rings)):
        ring = rings[position]
        for state in _gates_before(policy, position, facts):
            known = recorded.get((ring, state.gate))
            changed_at = known.at if known and known.state is state.state else version.now
            states.append(replace(state, ring=ring, at=changed_at))
    return tuple(states)


def _gates_before(policy: Policy, position: int, facts: Facts) -> Iterator[GateState]:
    gates = gates_of(policy, policy.effective_rings[position])
    for gate in kinds(gates, facts.version.package_id):
        match gate:
            case Gate.APPROVAL:
                yield _approved(gate, facts, gates.approvals)
            case Gate.AGE:
                yield _age(policy.effective_rings, position, gates.age_days, facts.version)
            case Gate.SCAN:
                yield _scan(gates, facts)
            case Gate.SIGNATURE:
                yield _signature(gates, facts)


def _state(gate: Gate, state: GateStatus, reason: str = "", until: datetime | None = None) -> GateState:
    return GateState("", gate, state, reason, until)


def _approved(gate: Gate, facts: Facts, needed: int, finding: str = "", since: datetime | None = None) -> GateState:
    """Passed when enough people approved this very file, not before a finding was made."""
    version = facts.version
    approvals = [
        approval
        for approval in version.release.approvals
        if approval.by and approval.by != version.publisher and approval.sha256 == version.sha256
    ]
    people = tuple(dict.fromkeys(approval.by for approval in approvals if since is None or approval.at >= since))
    reason = f"{finding}It has {len(people)} of {needed} approvals."
    status = GateStatus.PASSED if len(people) >= needed else GateStatus.WAITING
    return GateState("", gate, status, reason, by=people)


def _age(rings: Sequence[str], position: int, days: int, version: VersionRelease) -> GateState:
    since = version.published_at if position == 0 else _entered(rings, position - 1, version)
    if since is None:
        reason = f"It has not entered the ring {rings[position - 1]!r} yet."
        return _state(Gate.AGE, GateStatus.WAITING, reason)
    until, ring = since + timedelta(days=days), f"in the ring {rings[position - 1]!r}" if position else "published"
    reason = f"It must have been {ring} for {days} day{'s' * (days != 1)}."
    if version.status is ReleaseStatus.PAUSED:
        return _state(Gate.AGE, GateStatus.WAITING, "The version is paused.", until)
    if since > version.now:
        return _state(Gate.AGE, GateStatus.WAITING, "The database's clock went back.", until)
    return _state(Gate.AGE, GateStatus.PASSED if version.now >= until else GateStatus.WAITING, reason, until)


def _entered(rings: Sequence[str], position: int, version: VersionRelease) -> datetime | None:
    """The time at which a version entered a ring, or later if the ring was added since."""
    if version.level(rings) < position:
        return None
    entry = version.release.entry_of(rings[position])
    return entry.at if entry else max((entry.at for entry in version.release.entered), default=version.published_at)


def _scan(gates: Gates, facts: Facts) -> GateState:
    needed = max(1, gates.approvals)
    if facts.version.is_external:
        return _approved(Gate.SCAN, facts, needed, "An external installer cannot be scanned. ")
    checks = facts.checks
    if checks is None or checks.sha256 != facts.version.sha256:
        return _state(Gate.SCAN, GateStatus.WAITING, "There is no verdict for this file yet.")
    scan = checks.scan
    cause = f" ({_shown(scan.reason)})" if scan.reason else ""
    if scan.state == "clean":
        return _state(Gate.SCAN, GateStatus.PASSED, "The scanner calls the file clean.")
    if scan.state == "infected":
        return _state(Gate.SCAN, GateStatus.FAILED, f"The scanner calls the file infected{cause}.")
    if scan.state == "too_large" and scan.at is not None:
        return _approved(Gate.SCAN, facts, needed, "The file is too large for the scanner. ", scan.at)
    reasons = {"off": "No scanner is configured.", "failed": f"The scan failed{cause}; it is tried again."}
    return _state(Gate.SCAN, GateStatus.WAITING, reasons.get(scan.state, "The file is not scanned yet."))


def _signature(gates: Gates, facts: Facts) -> GateState:
    checks = facts.checks
    if facts.version.is_external:
        return _state(Gate.SIGNATURE, GateStatus.FAILED, "The signature of an external installer cannot be verified.")
    if checks is None or checks.sha256 != facts.version.sha256:
        return _state(Gate.SIGNATURE, GateStatus.WAITING, "The signature is not verified yet.")
    signature = checks.signature
    if signature.state in FAILED_SIGNATURES:
        cause = f" ({_shown(signature.reason)})" if signature.reason else ""
        return _state(Gate.SIGNATURE, GateStatus.FAILED, f"The signature is {signature.state}{cause}.")
    if signature.state != "valid":
        return _state(Gate.SIGNATURE, GateStatus.WAITING, "The signature is not verified yet.")
    return _signer(gates, facts, signature)


def _signer(gates: Gates, facts: Facts, signature: Signature) -> GateState:
    """Passed when the signer is the pinned one, and the one of the version before or approved."""
    rule, signer = signature_rule(gates, facts.version.package_id), _shown(signature.signer)
    publisher = rule.publisher if rule else ""
    if publisher and not is_same_name(signature.signer, publisher):
        return _state(Gate.SIGNATURE, GateStatus.FAILED, f"The signer is {signer}, and not {publisher}.")
    before = facts.previous_signer
    if before is None or (before and not is_same_name(signature.signer, before)):
        finding = f"The signer is {signer}; the version before was signed by {_shown(before or '')}. "
        if before is None:
            finding = f"The signer is {signer}; the signer of the version before is not known. "
        if signature.at is None:
            return _state(Gate.SIGNATURE, GateStatus.WAITING, finding.strip())
        return _approved(Gate.SIGNATURE, facts, max(1, gates.approvals), finding, signature.at)
    return _state(Gate.SIGNATURE, GateStatus.PASSED, f"The file is signed by {signer}.")


def _shown(text: str) -> str:
    """A text of a certificate or a scanner, as it may stand in a log."""
    return "".join(character if character.isprintable() else "?" for character in text[:SHOWN_LIMIT])
