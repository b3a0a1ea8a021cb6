"""The state of a published version as `pkgrepo publish` reports it."""

from typing import Any

import pytest

from common.errors import UpstreamProblem
from deploy.publish import release_state
from deploy.publish.release_state import exit_status_of, wait_for_state
from tests.support.tables import each

Gate = tuple[str, str]  # its code and state


class Scripted:
    """Responds with these releases in order, and repeats the last."""

    def __init__(self, *releases: dict[str, Any]) -> None:
        self.releases = [*releases]

    async def request(self, *_: str) -> dict[str, Any]:
        return self.releases.pop(0) if len(self.releases) > 1 else self.releases[0]


def make_release(*gates: Gate, stage: str = "", status: str = "active", codes: tuple[str, ...] = ()) -> dict[str, Any]:
    rows = [{"codes": [code], "state": state, "reason": f"({code})"} for code, state in gates]
    release = {"stage": stage, "status": status, "codes": codes, "reason": "".join(codes)}
    return {**release, "next_ring": "broad" if gates else "", "rings": [{"ring": "broad", "gates": rows}]}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_state, "POLL_PAUSE", 0)


async def state_of(*releases: dict[str, Any], polls: int = 9) -> tuple[int, str]:
    return await wait_for_state(Scripted(*releases), "uid", polls)  # type: ignore[arg-type]  # a part of the client


PENDING, INFECTED, READY = ("scan_pending", "waiting"), ("scan_infected", "failed"), ("approvals", "passed")
PAUSED = "The version is paused; resume it before it goes on."


@each(
    "release, status, text",
    [
        (make_release(stage="broad"), 0, "Offered to the ring broad."),
        (
            make_release(("approvals", "waiting")),
            4,
            "Not offered to a ring yet. The ring broad waits for: (approvals)",
        ),
        (
            make_release(("approvals", "waiting"), stage="pilot"),
            0,
            "Offered to the ring pilot. The ring broad waits for: (approvals)",
        ),
        (make_release(INFECTED), 3, "Malware: no machine gets this version. (scan_infected)"),
        (
            make_release(status="held", codes=("scan_infected",)),
            3,
            "Malware: no machine gets this version. scan_infected",
        ),
        (
            make_release(READY, stage="pilot"),
            0,
            "Offered to the ring pilot. The ring broad waits for: nothing; promote it.",
        ),
        (make_release(READY, status="paused"), 4, f"Not offered to a ring yet. {PAUSED}"),
        (make_release(("approvals", "waiting"), status="paused"), 4, f"Not offered to a ring yet. {PAUSED}"),
        (make_release(READY, status="paused", stage="pilot"), 0, f"Offered to the ring pilot. {PAUSED}"),
        (make_release(status="held", codes=("given",)), 4, "Offered to no ring: the version is held. given"),
    ],
)
async def test_each_state_has_a_sentence_and_an_exit_status(release: dict[str, Any], status: int, text: str) -> None:
    assert await state_of(release) == (status, text)


async def test_a_pending_scan_is_waited_for() -> None:
    pending = make_release(PENDING, ("approvals", "waiting"))
    assert (await state_of(pending, pending, make_release(INFECTED)))[0] == 3
    assert (await state_of(pending, pending, make_release(stage="broad")))[0] == 0


async def test_no_wait_reports_the_pending_scan() -> None:
    status, text = await state_of(make_release(PENDING), make_release(stage="broad"), polls=0)
    assert (status, text) == (4, "Not offered to a ring yet. The ring broad waits for: (scan_pending)")


@each(
    "code, params, status",
    [
        ("gate_waiting", {"gate": "scan", "state": "failed"}, 3),
        ("version_infected", {}, 3),
        ("gate_waiting", {"gate": "scan", "state": "waiting"}, 4),
        ("gate_waiting", {"gate": "signature", "state": "failed"}, 4),
        ("version_exists", {}, 1),
    ],
)
def test_each_refusal_has_an_exit_status(code: str, params: dict[str, str], status: int) -> None:
    assert exit_status_of(UpstreamProblem("No.", status=409, code=code, params=params)) == status
