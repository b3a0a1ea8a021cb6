"""Answers about releases as catalog_service gives them."""

from typing import Any
from uuid import uuid4

AT = "2026-11-20T12:00:00+00:00"
Gate = dict[str, Any]


def make_gate(
    gate: str, state: str = "waiting", reason: str = "", *, until: str = "", by: tuple[str, ...] = ()
) -> Gate:
    """A gate before a ring. A waiting one without a reason waits for an approval."""
    reason = reason or ("It has 0 of 1 approvals." if (gate, state) == ("approval", "waiting") else "")
    return {"gate": gate, "state": state, "reason": reason, "until": until or None, "at": AT, "by": list(by)}


def make_release(
    *, rings: tuple[str, ...] = ("pilot", "broad"), entered: int = 1, gates: tuple[Gate, ...] = (), **changes: Any
) -> dict[str, Any]:
    """A version in the first `entered` rings, with `gates` before the next one."""
    next_ring = rings[entered] if entered < len(rings) else ""
    is_offered = changes.get("status", "active") in {"active", "paused"}
    return {
        "uid": str(uuid4()),
        "package_id": "Acme.Anvil",
        "version": "2.0",
        "channel": "stable",
        "file_architect": "x64",
        "sha256": "0" * 64,
        "published_at": AT,
        "published_by": "bob",
        "status": "active",
        "reason": "",
        "pinned": False,
        "stage": rings[entered - 1] if entered else "",
        "next_ring": next_ring,
        "rings": [
            {
                "ring": ring,
                "offered": is_offered and number < entered,
                "entered_at": AT if number < entered else None,
                "entered_by": "ada" if number < entered else "",
                "gates": list(gates) if ring == next_ring else [],
            }
            for number, ring in enumerate(rings)
        ],
        **changes,
    }
