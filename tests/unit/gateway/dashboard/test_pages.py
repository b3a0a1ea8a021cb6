"""The pages of the dashboard: overview, install command, long lists, and the buttons for a release."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from common.auth.internal_tokens import Caller
from common.auth.roles import Permission, Role, has_permission
from gateway.dashboard.page_request import ListPart, PageRequest, paginate, paginate_list
from gateway.dashboard.pages.overview import CHART_HEIGHT, chart_bars, expires_soon, is_nearly_full
from gateway.dashboard.pages.packages import install_command
from gateway.dashboard.pages.releases import actions_for, is_ready, waiting_for
from gateway.dashboard.templating import set_up_templates
from gateway.operations import OPERATIONS
from tests.support.factories import make_tenant
from tests.support.releases import make_gate, make_release
from tests.support.tables import each

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_the_chart_ends_today_and_has_30_days() -> None:
    bars = chart_bars({}, NOW, 30)
    assert (len(bars), bars[0].day, bars[-1].day) == (30, "2026-10-24", "2026-11-22")
    assert {bar.height for bar in bars} == {0}


def test_the_highest_bar_fills_the_chart() -> None:
    bars = chart_bars({"2026-11-21": 4, "2026-11-22": 1, "2025-01-01": 9}, NOW, 30)
    assert [(bar.y, bar.height) for bar in bars[-2:]] == [(0, CHART_HEIGHT), (75, 25)]


def test_the_chart_of_a_year_has_a_bar_for_each_week() -> None:
    bars = chart_bars({"2026-11-22": 1, "2026-11-16": 2, "2026-11-15": 4}, NOW, 365)
    assert (len(bars), [(bar.day, bar.downloads) for bar in bars[-2:]]) == (53, [("2026-11-09", 4), ("2026-11-16", 3)])


@each(("days", "is_told"), [(13, True), (-1, True), (15, False), (None, False)])
def test_a_token_that_ends_soon_is_told(days: int | None, is_told: bool) -> None:
    ends = None if days is None else (NOW + timedelta(days=days)).isoformat()
    assert expires_soon({"expires_at": ends}, NOW) == is_told


@each(("quota", "is_told"), [(None, False), (100, True), (112, False)])
def test_a_storage_that_is_nearly_full_is_told(quota: int | None, is_told: bool) -> None:
    information = {"storage_quota": quota, "storage_used": 80, "storage_reserved": 11}
    assert is_nearly_full(information) == is_told


def test_every_audited_operation_has_words() -> None:
    shared = set_up_templates(web.Application()).get_template("administration.html")
    words: Any = shared.make_module({"language": "en"})
    assert {row.name for row in OPERATIONS if row.audited} <= words.action_names.keys()


IDS = [
    "Acme.Anvil",
    "Acme.Anvil & Söhne",
    "it's;calc",
    "$(calc)",
    "$env:USERNAME",
    "`n",
    "a`",
    "``$$",
    "(calc)",
    "a|calc",
    "{calc}",
    "@calc",
    "#a",
    "--%",
    "-a.b",
    "\u201d;calc;\u201c",
    "\u201e$a\u201e",
    "\u2018;calc;\u2019",
]


def read_by_powershell(quoted: str) -> str:
    """The value of a word in double quotes, as PowerShell reads it. Raises ValueError if it contains code."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", quoted):
        return quoted
    value, position = [], 1
    while quoted[position] not in '"\u201c\u201d\u201e':
        if quoted[position] == "$":
            raise ValueError("a value is put in")
        if quoted[position] == "`":
            position += 1
            if quoted[position] in "0abefnrtuv":
                raise ValueError("another character is meant")
        value.append(quoted[position])
        position += 1
    if quoted[0] != '"' or position != len(quoted) - 1:
        raise ValueError("something stands outside of the quotes")
    return "".join(value)


@each("package_id", IDS)
def test_powershell_reads_an_id_unchanged_and_runs_no_part_of_it(package_id: str) -> None:
    command = install_command(package_id, "acme")
    quoted = command.removeprefix("winget install --id ").removesuffix(" --source acme")
    assert read_by_powershell(quoted) == package_id


def test_a_plain_id_is_not_quoted() -> None:
    assert install_command("Acme.Anvil", "acme") == "winget install --id Acme.Anvil --source acme"
    assert install_command("Acme Anvil", "acme") == 'winget install --id "Acme Anvil" --source acme'


ITEMS = list("abcde")
ADDRESS = "/acme/dashboard/clients?search=x&page="


async def part_of_items(page: str) -> ListPart:
    """The part of five items, two per page, for the query parameter `page`."""

    async def fetch(offset: int, limit: int) -> tuple[list[str], int]:
        return ITEMS[offset : offset + limit], len(ITEMS)

    return await paginate(make_mocked_request("GET", f"{ADDRESS}{page}"), fetch, size=2)


@each(
    ("page", "items", "first"),
    [
        ("2", "cd", 3),
        ("3", "e", 5),
        *((page, "ab", 1) for page in ("", "0", "-1", "x", "1.5", "%C2%B2", "%D9%A3", "1e3", "10000000000")),
        *((page, "e", 5) for page in ("4", "999999999")),
    ],
)
async def test_an_address_gets_the_nearest_existing_part(page: str, items: str, first: int) -> None:
    part = await part_of_items(page)
    assert ("".join(part.items), part.first, part.last, part.total) == (items, first, first + len(items) - 1, 5)


@each(("page", "previous", "following"), [("1", "", "2"), ("2", "1", "3"), ("3", "2", ""), ("9", "2", "")])
async def test_links_to_other_parts_keep_the_query(page: str, previous: str, following: str) -> None:
    part = await part_of_items(page)
    assert part.previous_url == (ADDRESS + previous if previous else "")
    assert part.next_url == (ADDRESS + following if following else "")


async def test_a_complete_list_is_split_into_parts() -> None:
    part = await paginate_list(make_mocked_request("GET", f"{ADDRESS}2"), list(range(45)))
    assert (part.items, part.total) == (list(range(20, 40)), 45)


async def test_an_empty_list_has_one_part() -> None:
    part = await paginate_list(make_mocked_request("GET", f"{ADDRESS}7"), [])
    assert (part.items, part.total, part.previous_url, part.next_url) == ([], 0, "", "")


async def test_an_offset_never_exceeds_the_integers_of_the_interface() -> None:
    ends = []

    async def fetch(offset: int, limit: int) -> tuple[list[str], int]:
        ends.append(offset + limit)
        return [], 1

    await paginate(make_mocked_request("GET", f"{ADDRESS}999999999"), fetch, size=50)
    assert max(ends) < 2**31


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


def test_an_external_installer_waits_for_no_scan() -> None:
    external = make_release(gates=(make_gate("scan", "waiting", "scan_external", "approvals", count="0", needed="1"),))
    assert waiting_for(page_of("eve", Role.VIEWER), [external]).for_scan == []


def test_nothing_waits_without_releases() -> None:
    assert not waiting_for(page_of(), []).any
