"""A tenant's policy for releases, and the gates before its rings.

Gates are pure functions of the policy, the version, its record and its file's checks.

A gate passes only if it knows that it may. An unknown state, a missing answer and a check of another file wait.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from catalog_service.model.installers import FileChecks, Scan, Signature
from catalog_service.model.releases import Gate, GateState, GateStatus, Reason, ReleaseStatus, VersionRelease
from common.auth.roles import EVERY_PACKAGE, PATTERN_LIMIT, matches
from common.telemetry import is_hidden
from common.tenants import DEFAULT_RING

MAX_RINGS = 10
MAX_RULES = 100  # of retention, or of the signatures before a ring
MAX_APPROVALS = 20
MAX_DAYS = 3650
MAX_DOWNLOADED_DAYS = 365  # Downloads are counted for 400 days.
Ring = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,31}$")]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=PATTERN_LIMIT)]
Days = Annotated[int, Field(ge=1, le=MAX_DAYS)]


def plain_subject(subject: str) -> str:
    """The subject of a certificate without spaces between its parts, as upload_service returns it."""
    return re.sub(r"\s*([,+=])\s*", r"\1", subject)


def is_same_name(one: str, other: str) -> bool:
    """Whether two subjects are the same; letter case does not matter."""
    return plain_subject(one).casefold() == plain_subject(other).casefold()


class Part(BaseModel):
    """A part of the policy: unknown names and other types are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SignatureRule(Part):
    """A valid signature is needed for matching packages: of this publisher, if one is pinned."""

    packages: Pattern = EVERY_PACKAGE[0]
    publisher: Annotated[str, StringConstraints(max_length=1000)] = ""


class Gates(Part):
    """The gates before a ring. `approvals` is a number of users, `age_days` are days in the ring before."""

    approvals: Annotated[int, Field(ge=0, le=MAX_APPROVALS)] = 0
    age_days: Annotated[int, Field(ge=0, le=MAX_DAYS)] = 0
    scan: bool = False
    signature: (
        Literal["", "signed"]
        | SignatureRule
        | Annotated[tuple[SignatureRule, ...], Field(strict=False, max_length=MAX_RULES)]
    ) = ""

    @property
    def signature_rules(self) -> Sequence[SignatureRule]:
        """The rules of signatures; the first that matches a package counts."""
        if isinstance(self.signature, tuple):
            return self.signature
        if isinstance(self.signature, SignatureRule):
            return (self.signature,)
        return (SignatureRule(),) if self.signature else ()


class RetentionRule(Part):
    """Conditions of the matching packages; a version that none of them keeps is deleted. None: no such condition."""

    packages: Pattern = EVERY_PACKAGE[0]
    keep_versions: Annotated[int, Field(ge=1, le=10_000)] | None = None
    published_days: Days | None = None
    downloaded_days: Annotated[int, Field(ge=1, le=MAX_DOWNLOADED_DAYS)] | None = None


class RingRule(Part):
    """Puts clients into a ring: those in a network, or the users with an app role (or group id) of Entra ID."""

    network: str = ""
    app_role: str = ""
    ring: str


class Policy(Part):
    """Rings in order, gates by ring, and retention rules: the first that matches a package counts.

    The first of the `ring_rules` that matches a client without a ring of its own chooses its ring.
    """

    rings: Annotated[tuple[Ring, ...], Field(strict=False)] = ()
    ring_rules: Annotated[tuple[RingRule, ...], Field(strict=False)] = ()
    gates: Mapping[str, Gates] = {}
    retention: Annotated[tuple[RetentionRule, ...], Field(strict=False, max_length=MAX_RULES)] = ()

    @property
    def effective_rings(self) -> Sequence[str]:
        """The rings, by default one."""
        return self.rings or (DEFAULT_RING,)

    @property
    def is_controlled(self) -> bool:
        """Whether new versions have a stage."""
        return bool(self.rings or self.gates)

    @property
    def shown_rings(self) -> Sequence[str]:
        """The rings; none without release control."""
        return self.effective_rings if self.is_controlled else ()

    @property
    def has_scan(self) -> bool:
        """Whether a ring has a scan gate."""
        return any(gates.scan for gates in self.gates.values())


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


def _state(
    gate: Gate, state: GateStatus, *codes: str, until: datetime | None = None, cause: str = "", **params: Any
) -> GateState:
    """`cause` is a text of a scanner or a certificate."""
    if cause:
        codes, params = (*codes, "cause"), {**params, "cause": cause}
    return GateState("", gate, state, Reason(codes, {name: _shown(str(text)) for name, text in params.items()}), until)


def _approved(
    gate: Gate, facts: Facts, needed: int, *findings: str, since: datetime | None = None, **params: Any
) -> GateState:
    """Passed when enough people approved this very file, not before a finding was made."""
    version = facts.version
    approvals = [
        approval
        for approval in version.release.approvals
        if approval.by and approval.by not in version.authors and approval.sha256 == version.sha256
    ]
    people = tuple(dict.fromkeys(approval.by for approval in approvals if since is None or approval.at >= since))
    status = GateStatus.PASSED if len(people) >= needed else GateStatus.WAITING
    state = _state(gate, status, *findings, "approvals", count=len(people), needed=needed, **params)
    return replace(state, by=people)


def _age(rings: Sequence[str], position: int, days: int, version: VersionRelease) -> GateState:
    since = version.published_at if position == 0 else _entered(rings, position - 1, version)
    ring = rings[position - 1] if position else ""
    if since is None:
        return _state(Gate.AGE, GateStatus.WAITING, "ring_before", ring=ring)
    since = max(since, version.release.edited_at or since)  # Machines run something else since an edit.
    until = since + timedelta(days=days)
    if version.status is ReleaseStatus.PAUSED:
        return _state(Gate.AGE, GateStatus.WAITING, "version_paused", until=until)
    if since > version.now:
        return _state(Gate.AGE, GateStatus.WAITING, "clock_went_back", until=until)
    status = GateStatus.PASSED if version.now >= until else GateStatus.WAITING
    return _state(Gate.AGE, status, "days_in_ring" if ring else "days_published", until=until, ring=ring, days=days)


def _entered(rings: Sequence[str], position: int, version: VersionRelease) -> datetime | None:
    """The time at which a version entered a ring, or later if the ring was added since."""
    if version.level(rings) < position:
        return None
    entry = version.release.entry_of(rings[position])
    return entry.at if entry else max((entry.at for entry in version.release.entered), default=version.published_at)


def _scan(gates: Gates, facts: Facts) -> GateState:
    needed, checks = max(1, gates.approvals), facts.checks
    if facts.version.is_external:
        return _approved(Gate.SCAN, facts, needed, "scan_external")
    scan = checks.scan if checks and checks.sha256 == facts.version.sha256 else Scan()
    if scan.state == "clean":
        return _state(Gate.SCAN, GateStatus.PASSED, "scan_clean")
    if scan.state == "infected":
        return _state(Gate.SCAN, GateStatus.FAILED, "scan_infected", cause=scan.reason)
    if scan.state == "too_large" and scan.at is not None:
        return _approved(Gate.SCAN, facts, needed, "scan_too_large", since=scan.at)
    code = {"off": "scan_off", "failed": "scan_failed"}.get(scan.state, "scan_pending")
    return _state(Gate.SCAN, GateStatus.WAITING, code, cause=scan.reason)


def _signature(gates: Gates, facts: Facts) -> GateState:
    checks = facts.checks
    if facts.version.is_external:
        return _state(Gate.SIGNATURE, GateStatus.FAILED, "signature_external")
    signature = checks.signature if checks and checks.sha256 == facts.version.sha256 else Signature()
    if signature.state in FAILED_SIGNATURES:
        return _state(Gate.SIGNATURE, GateStatus.FAILED, f"signature_{signature.state}", cause=signature.reason)
    if signature.state != "valid":
        return _state(Gate.SIGNATURE, GateStatus.WAITING, "signature_pending")
    return _signer(gates, facts, signature)


def _signer(gates: Gates, facts: Facts, signature: Signature) -> GateState:
    """Passed when the signer is the pinned one, and the one of the version before or approved."""
    rule, signer, before = signature_rule(gates, facts.version.package_id), signature.signer, facts.previous_signer
    publisher = rule.publisher if rule else ""
    if publisher and not is_same_name(signer, publisher):
        return _state(Gate.SIGNATURE, GateStatus.FAILED, "not_the_publisher", signer=signer, publisher=publisher)
    if before == "" or (before and is_same_name(signer, before)):
        return _state(Gate.SIGNATURE, GateStatus.PASSED, "signed_by", signer=signer)
    finding = "other_signer_before" if before else "unknown_signer_before"
    params: dict[str, Any] = {"signer": signer, "previous": before or ""}
    if signature.at is None:
        return _state(Gate.SIGNATURE, GateStatus.WAITING, finding, **params)
    needed = max(1, gates.approvals)
    return _approved(Gate.SIGNATURE, facts, needed, finding, since=signature.at, **params)


def _shown(text: str) -> str:
    """A text of a certificate or a scanner, as it may stand in a log."""
    return "".join("?" if is_hidden(character) else character for character in text[:SHOWN_LIMIT])
