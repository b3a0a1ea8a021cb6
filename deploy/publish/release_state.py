"""The state of a published version: the rings that offer it, and what it waits for."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from common.errors import Problem
from deploy.publish.client import RetryingClient

INFECTED, WAITS = 3, 4  # exit status
POLL_PAUSE = 1.0  # seconds
Release = Mapping[str, Any]  # the answer of `get_release`
# The codes of gates that pass or fail without a person, and soon.
AUTOMATIC = frozenset(["not_looked_at", "scan_pending", "scan_failed", "signature_pending"])


async def wait_for_state(client: RetryingClient, uid: str, polls: int) -> tuple[int, str]:
    """The exit status of a version and its state in words, once no automatic check is open, or after some polls."""
    try:
        release: Release = await client.request("GET", "get_release", uid)
        while polls > 0 and release["status"] == "active" and not AUTOMATIC.isdisjoint(_codes(_open_gates(release))):
            await asyncio.sleep(POLL_PAUSE)
            release, polls = await client.request("GET", "get_release", uid), polls - 1
    except Problem as problem:
        return WAITS, f"The state of the version is unknown. {problem.detail}"
    return _state(release)


def exit_status_of(problem: Problem) -> int:
    """INFECTED for malware, WAITS for another gate, else 1."""
    gate = (problem.params.get("gate"), problem.params.get("state"))
    if problem.code in {"version_infected", "installer_infected"} or gate == ("scan", "failed"):
        return INFECTED
    return WAITS if problem.code == "gate_waiting" else 1


def _state(release: Release) -> tuple[int, str]:
    failed = [gate for ring in release["rings"] for gate in ring["gates"] if gate["state"] == "failed"]
    infected = [part for part in (release, *failed) if "scan_infected" in part["codes"]]
    stage, status, reason = release["stage"], release["status"], release["reason"]
    if infected:
        return INFECTED, f"Malware: no machine gets this version. {infected[-1]['reason']}"
    if status not in {"active", "paused"}:
        return WAITS, f"Offered to no ring: the version is {status.replace('_', ' ')}. {reason}".strip()
    text = f"Offered to the ring {stage}." if stage else "Not offered to a ring yet."
    if status == "paused":
        return 0 if stage else WAITS, f"{text} The version is paused; resume it before it goes on."
    if release["next_ring"]:
        waits = " ".join(gate["reason"] for gate in _open_gates(release)) or "nothing; promote it."
        text += f" The ring {release['next_ring']} waits for: {waits}"
    return 0 if stage else WAITS, text


def _open_gates(release: Release) -> Sequence[Mapping[str, Any]]:
    """The gates of the next ring that have not passed."""
    rings = [ring for ring in release["rings"] if ring["ring"] == release["next_ring"]]
    return [gate for ring in rings for gate in ring["gates"] if gate["state"] != "passed"]


def _codes(gates: Sequence[Mapping[str, Any]]) -> set[str]:
    return {code for gate in gates for code in gate["codes"]}
