"""Builds the response bodies of releases."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from catalog_service.model.releases import GateState, GateStatus, Reason, VersionRelease
from catalog_service.model.stages import is_offered
from catalog_service.releases.gates import gates_of, kinds
from catalog_service.releases.policy import Policy

UNKNOWN = Reason(("not_looked_at",))


def release(policy: Policy, version: VersionRelease) -> dict[str, Any]:
    """Return the stage of a version, with the state of each gate before each ring."""
    rings, level = policy.effective_rings, version.level(policy.effective_rings)
    return {
        "uid": version.uid,
        "package_id": version.package_id,
        "version": version.version,
        "channel": version.channel,
        "file_architect": version.architecture,
        "sha256": version.sha256,
        "published_at": version.published_at,
        "published_by": version.published_by,
        "status": version.status,
        **version.release.reason.members,
        "pinned": version.release.pinned,
        "stage": rings[level] if level >= 0 else "",
        "next_ring": rings[level + 1] if level + 1 < len(rings) else "",
        "rings": [_ring(policy, version, position) for position in range(len(rings))],
    }


def release_with_history(policy: Policy, version: VersionRelease) -> dict[str, Any]:
    """Return the same with the history, newest first."""
    return {
        **release(policy, version),
        "history": [{**asdict(event), **event.reason.members} for event in reversed(version.release.history)],
    }


def _ring(policy: Policy, version: VersionRelease, position: int) -> dict[str, Any]:
    rings = policy.effective_rings
    ring, entry = rings[position], version.release.entry_of(rings[position])
    return {
        "ring": ring,
        "offered": is_offered(version.stage, ring, rings),
        "entered_at": entry.at if entry else None,
        "entered_by": entry.by if entry else "",
        "gates": [_gate(state) for state in _gates(policy, version, position)],
    }


def _gates(policy: Policy, version: VersionRelease, position: int) -> Iterator[GateState]:
    """The gates that the version passed; before a ring to come, those of the policy."""
    ring = policy.effective_rings[position]
    recorded = {state.gate: state for state in version.release.gates if state.ring == ring}
    if position <= version.level(policy.effective_rings):
        yield from recorded.values()
        return
    for gate in kinds(gates_of(policy, ring), version.package_id):
        yield recorded.get(gate) or GateState(ring, gate, GateStatus.WAITING, UNKNOWN)


def _gate(state: GateState) -> dict[str, Any]:
    fields = {**asdict(state), **state.reason.members}
    del fields["ring"]
    return fields
