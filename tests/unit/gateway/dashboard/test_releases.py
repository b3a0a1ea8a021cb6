"""The buttons for a release, and what waits for whom."""

from typing import Any
from unittest.mock import Mock

from common.auth.internal_tokens import Caller
from common.auth.roles import Permission, Role, has_permission
from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.pages.releases import actions_for, is_ready, waiting_for
from tests.support.factories import make_tenant
from tests.support.releases import make_gate, make_release
from tests.support.tables import each

APPROVAL, PASSED = make_gate("approval"), make_gate("scan", "passed")


def page_of(username: str = "ada", role: Role = Role.APPROVER) -> PageRequest:
    caller = Caller(make_tenant(tenant_id="acme")).as_administrator(username, "1", (role,))
    return Mock(caller=caller, may=lambda permission: has_permission(caller.roles, Permission(permission)))


@each(
    ("changes", "actions"),
    [
        ({}, {"pause", "hold", "roll_back", "promote"}),
        ({"entered": 0}, {"pause", "hold", "promote"}),
        ({"entered": 2}, {"hold", "roll_back"}),
        ({"status": "paused"}, {"resume", "hold", "roll_back"}),
        ({"status": "held"}, {"resume"}),
        ({"status": "rolled_back", "entered": 0}, {"resume"}),
        ({"status": "retired", "entered": 2}, {"resume"}),
    ],
    ["in flight", "in no ring yet", "in the last ring", "paused", "held", "rolled back", "retired"],
)
def test_an_approver_has_the_actions_that_fit_the_state(changes: dict[str, Any], actions: set[str]) -> None:
    assert actions_for(page_of(), make_release(**changes)) == actions


@each("role", [Role.VIEWER, Role.PUBLISHER, Role.AUDITOR])
def test_without_the_permission_there_are_no_actions(role: Role) -> None:
    assert actions_for(page_of(role=role), make_release(gates=(APPROVAL,))) == frozenset()


@each(
    ("username", "gate", "status", "is_asked"),
    [
        ("ada", APPROVAL, "active", True),
        ("bob", APPROVAL, "active", False),
        ("ada", make_gate("approval", by=("ada",)), "active", False),
        ("ada", make_gate("approval", by=("eve",)), "active", True),
        ("ada", make_gate("scan", "waiting", "scan_too_large", "approvals", count="0", needed="1"), "active", True),
        ("ada", make_gate("scan", "waiting", "scan_pending"), "active", False),
        ("ada", make_gate("signature", "failed", "signature_invalid"), "active", False),
        ("ada", make_gate("approval", "passed", by=("eve",)), "active", False),
        ("ada", APPROVAL, "held", False),
    ],
    [
        "another user",
        "the publisher",
        "who approved already",
        "after another approval",
        "a finding that people may accept",
        "a scan to come",
        "a failed gate",
        "enough approvals",
        "a held version",
    ],
)
def test_only_those_who_count_are_asked_to_approve(username: str, gate: Any, status: str, is_asked: bool) -> None:
    release = make_release(gates=(gate,), status=status)
    page = page_of(username)
    assert ("approve" in actions_for(page, release)) == is_asked
    assert waiting_for(page, [release]).for_approval == ([release] if is_asked else [])


@each(
    ("changes", "ready"),
    [
        ({}, True),
        ({"gates": (PASSED,)}, True),
        ({"gates": (PASSED, APPROVAL)}, False),
        ({"gates": (make_gate("scan", "failed"),)}, False),
        ({"status": "paused"}, False),
        ({"entered": 2}, False),
    ],
    ["no gates", "all passed", "one waits", "one failed", "paused", "in the last ring"],
)
def test_a_version_can_be_promoted_when_all_gates_have_passed(changes: dict[str, Any], ready: bool) -> None:
    assert is_ready(make_release(**changes)) == ready


def test_a_publisher_is_told_of_own_versions_that_wait_for_others() -> None:
    own, other = make_release(gates=(APPROVAL,)), make_release(gates=(APPROVAL,), published_by="eve")
    waiting = waiting_for(page_of("bob", Role.PUBLISHER), [own, other])
    assert (waiting.own_for_approval, waiting.for_approval, waiting.for_promotion) == ([own], [], [])


def test_a_viewer_is_told_of_stopped_versions_and_of_gates_that_failed() -> None:
    held, paused = make_release(status="held"), make_release(status="paused")
    scanned, failed = make_release(gates=(make_gate("scan"),)), make_release(gates=(make_gate("signature", "failed"),))
    waiting = waiting_for(page_of("eve", Role.VIEWER), [held, paused, scanned, failed])
    assert (waiting.held, waiting.paused, waiting.for_scan, waiting.failed) == ([held], [paused], [scanned], [failed])


def test_nothing_waits_without_releases() -> None:
    assert not waiting_for(page_of(), []).any
