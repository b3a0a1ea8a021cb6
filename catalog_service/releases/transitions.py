"""The steps of a version: pure functions from a version to its next state. A step that changes nothing returns it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from catalog_service.model.releases import (
    Approval,
    Gate,
    GateState,
    GateStatus,
    Reason,
    ReleaseStatus,
    RingEntry,
    VersionRelease,
)
from catalog_service.releases.gates import Facts, Policy, evaluate, gates_of
from common.errors import Conflict, Forbidden
from common.tenants import ALL_RINGS, unknown_ring

FIRST_CHECK, LAST_CHECK = timedelta(seconds=1), timedelta(minutes=1)  # pauses between two questions about a file
POSTPONED = timedelta(seconds=5)
CHECKED = {Gate.SCAN, Gate.SIGNATURE}  # gates that upload_service knows the facts of


class GateWaiting(Conflict):
    """A gate before a ring has not passed."""

    code = "gate_waiting"

    def __init__(self, state: GateState) -> None:
        text = f"The gate {state.gate} before the ring {state.ring!r} has not passed: {state.reason.text}"
        super().__init__(text, ring=state.ring, gate=state.gate, state=state.state, cause=state.reason.text)
        self.members = {"ring": state.ring, "gate": state.gate.value}


class OwnVersion(Forbidden):
    code = "own_version"
    text = "You published or changed this version. Another user must approve it."


class VersionApproved(Conflict):
    code = "version_approved"
    text = "Users approved this version for the ring {ring!r}. Roll it back first, so that they decide again."


class VersionInfected(Conflict):
    code = "version_infected"
    text = "The scanner calls the file of this version infected, so it stays held."


class VersionStopped(Conflict):
    code = "version_stopped"
    text = "The version is {status}. Resume it first."


def approve(version: VersionRelease, person: str, edited_at: str | None = None) -> VersionRelease:
    """Add an approval of the version's file, or renew it if a check waits that does not count it.

    Raises OwnVersion, or VersionChanged if the approver saw the version as it was at an earlier `edited_at`.
    """
    if not person or person in version.authors:
        raise OwnVersion
    release = version.release
    if edited_at is not None and edited_at != version.edited_at:
        raise version.changed
    is_missed = any(
        state.gate in CHECKED and state.state is GateStatus.WAITING and person not in state.by
        for state in release.gates
    )
    if not is_missed and any((item.by, item.sha256) == (person, version.sha256) for item in release.approvals):
        return version
    others = [item for item in release.approvals if item.by != person]
    approvals = (*others, Approval(person, version.sha256, version.now))
    return replace(version, release=replace(release, approvals=approvals)).with_event("approved", person)


def edit(policy: Policy, version: VersionRelease, person: str) -> VersionRelease:
    """Note a change of what machines run: earlier approvals do not count, and days in rings count from now.

    Raises VersionApproved in a ring that needs approvals: its machines would run what nobody approved.
    """
    rings, release = policy.effective_rings, version.release
    approved = {state.ring for state in release.gates if state.by}
    for ring in rings[: version.level(rings) + 1]:
        if gates_of(policy, ring).approvals or ring in approved:
            raise VersionApproved(ring=ring)
    editors = tuple(dict.fromkeys((*release.editors, person)))
    return replace(version, release=replace(release, approvals=(), editors=editors, edited_at=version.now))


def pause(version: VersionRelease, by: str) -> VersionRelease:
    """Raises VersionStopped if the version is withdrawn."""
    if version.status is ReleaseStatus.PAUSED:
        return version
    require_active(version)
    return version.with_stage(version.rings, ReleaseStatus.PAUSED).with_event("paused", by)


def hold(version: VersionRelease, by: str, reason: Reason) -> VersionRelease:
    if version.status is ReleaseStatus.HELD and version.release.reason == reason:
        return version
    return _stop(version, version.rings, ReleaseStatus.HELD, "held", by, reason)


def roll_back(version: VersionRelease, by: str, reason: Reason) -> VersionRelease:
    """Take a version out of all rings. When it is resumed, it begins before the first ring."""
    if version.status is ReleaseStatus.ROLLED_BACK:
        return version
    signer_counts = version.release.signer_counts or version.is_complete
    version = replace(version, release=replace(version.release, entered=(), gates=(), signer_counts=signer_counts))
    return _stop(version, (), ReleaseStatus.ROLLED_BACK, "rolled_back", by, reason)


def resume(facts: Facts, by: str) -> VersionRelease:
    """End a stop: the version is in the rings again that it had entered. A person pins a retired one: it stays.

    Raises VersionInfected if the version is withdrawn and its file is infected.
    """
    version, checks = facts.version, facts.checks
    if version.status is ReleaseStatus.ACTIVE:
        return version
    if version.is_withdrawn and checks and checks.sha256 == version.sha256 and checks.scan.state == "infected":
        raise VersionInfected
    pinned = version.release.pinned or (version.is_retired and by != "")
    release = replace(version.release, reason=Reason(), retired_at=None, due=version.now, pinned=pinned)
    version = replace(version, release=release)
    return version.with_stage(version.rings, ReleaseStatus.ACTIVE).with_event("resumed", by)


def pin(facts: Facts, by: str, *, pinned: bool) -> VersionRelease:
    """Protect a version from retention, or not. A pinned version is retired no more. Raises as `resume` does."""
    version = resume(facts, by) if pinned and facts.version.is_retired else facts.version
    if version.release.pinned is pinned:
        return version
    release = replace(version.release, pinned=pinned)
    return replace(version, release=release).with_event("pinned" if pinned else "unpinned", by)


def retire(version: VersionRelease, reason: Reason) -> VersionRelease:
    """Hide a version, because no rule of retention keeps it."""
    if version.release.pinned or version.is_retired:
        return version
    version = _stop(version, version.rings, ReleaseStatus.RETIRED, "retired", "", reason)
    return replace(version, release=replace(version.release, retired_at=version.now, due=version.now))


def delete(version: VersionRelease) -> VersionRelease:
    """Record the deletion of a retired version."""
    if not version.is_retired:
        return version
    version = version.with_event("deleted")
    return replace(version, release=replace(version.release, due=version.now))


def promote(policy: Policy, facts: Facts, ring: str, by: str) -> VersionRelease:
    """Let a version enter a ring of the policy, and those before it.

    Raises InvalidField, VersionStopped, or GateWaiting for the first gate on the way that has not passed.
    """
    version, rings = facts.version, policy.effective_rings
    if ring not in rings:
        raise unknown_ring("ring", rings)
    if version.is_withdrawn or version.level(rings) < rings.index(ring):
        require_active(version)
    while version.level(rings) < rings.index(ring):
        following = rings[version.level(rings) + 1]
        states = evaluate(policy, replace(facts, version=version))
        for state in states:
            if state.ring == following and state.state is not GateStatus.PASSED:
                raise GateWaiting(state)
        version = _enter(_record_gates(version, states), rings, by)
    return version


def advance(policy: Policy, facts: Facts) -> VersionRelease:
    """Record the states of the gates, and let the version enter the rings that it enters by itself.

    Sets `due` to the time at which something may change by itself.
    """
    version, rings = facts.version, policy.effective_rings
    if version.stage is None or version.is_withdrawn:
        return replace(version, release=replace(version.release, due=None))
    if version.level(rings) == len(rings) - 1 and version.status is ReleaseStatus.ACTIVE:
        version = version.with_stage((ALL_RINGS,), version.status)  # The rings after it may have been removed.
    while True:
        states = evaluate(policy, replace(facts, version=version))
        version, following = _record_gates(version, states), rings[min(version.level(rings) + 1, len(rings) - 1)]
        before = [state for state in states if state.ring == following]
        by_itself = following == rings[0] or gates_of(policy, following).age_days > 0
        is_open = all(state.state is GateStatus.PASSED for state in before)
        if version.is_complete or version.status is not ReleaseStatus.ACTIVE or not by_itself or not is_open:
            break
        version = _enter(version, rings, "")
    waiting = tuple(state.gate for state in before if state.state is not GateStatus.PASSED)
    return replace(version, release=replace(version.release, waiting=waiting, due=_due(version, states)))


def postpone(version: VersionRelease) -> VersionRelease:
    """Look at a version again soon, because the checks of its file are not known now."""
    return replace(version, release=replace(version.release, due=version.now + POSTPONED))


def require_active(version: VersionRelease) -> None:
    """Raises VersionStopped."""
    if version.status is not ReleaseStatus.ACTIVE:
        raise VersionStopped(status=version.status.replace("_", " "))


def _stop(
    version: VersionRelease, rings: tuple[str, ...], status: ReleaseStatus, event: str, by: str, reason: Reason
) -> VersionRelease:
    version = version.with_stage(rings, status).with_event(event, by, reason=reason)
    release = replace(version.release, reason=reason, retired_at=None, waiting=())
    return replace(version, release=release)


def _enter(version: VersionRelease, rings: Sequence[str], by: str) -> VersionRelease:
    ring = rings[version.level(rings) + 1]
    is_last = ring == rings[-1]
    entered = (*version.release.entered, RingEntry(ring, version.now, by))
    passed = {state.gate for state in version.release.gates if state.ring == ring}
    signer_counts = version.release.signer_counts or Gate.SIGNATURE in passed
    version = replace(version, release=replace(version.release, entered=entered, signer_counts=signer_counts))
    stage = (ALL_RINGS,) if is_last else (*version.rings, ring)
    return version.with_stage(stage, version.status).with_event("entered", by, ring)


def _record_gates(version: VersionRelease, states: Sequence[GateState]) -> VersionRelease:
    """Record new states. A gate that begins to wait is no event."""
    open_rings = {state.ring for state in states}
    recorded = {(state.ring, state.gate): state for state in version.release.gates}
    for state in states:
        known = recorded.get((state.ring, state.gate))
        before = known.state if known else GateStatus.WAITING
        if before is not state.state:
            version = version.with_event(f"gate_{state.state}", "", state.ring, state.reason)
    entered = {entry.ring for entry in version.release.entered}
    kept = [state for state in version.release.gates if state.ring not in open_rings and state.ring in entered]
    return replace(version, release=replace(version.release, gates=(*kept, *states)))


def _due(version: VersionRelease, states: Sequence[GateState]) -> datetime | None:
    """When to look at the version again without a request, None for never."""
    if version.is_complete or version.status is not ReleaseStatus.ACTIVE:
        return None
    times = [state.until for state in states if state.until and state.state is GateStatus.WAITING]
    if any(state.gate in CHECKED and state.state is not GateStatus.PASSED for state in states):
        pause = (version.now - version.published_at) / 10
        times.append(version.now + min(max(pause, FIRST_CHECK), LAST_CHECK))
    return min(times, default=None)
