"""Answers about releases as catalog_service gives them."""

from typing import Any
from uuid import uuid4

from catalog_service.model.releases import Reason

AT = "2026-11-20T12:00:00+00:00"
Gate = dict[str, Any]


def make_gate(
    gate: str, state: str = "waiting", *codes: str, until: str = "", by: tuple[str, ...] = (), **params: str
) -> Gate:
    """A gate before a ring. A waiting one of approvals waits for one."""
    if (gate, state, codes) == ("approval", "waiting", ()):
        codes, params = ("approvals",), {"count": "0", "needed": "1"}
    reason = Reason(codes, params).members
    return {"gate": gate, "state": state, **reason, "until": until or None, "at": AT, "by": list(by)}


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
        **Reason().members,
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
