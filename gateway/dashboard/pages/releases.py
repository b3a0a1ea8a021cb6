"""The page of the versions on their way through the rings, and the actions that a user may take on one."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from aiohttp import web

from common.auth.roles import Permission
from common.errors import Problem
from gateway.auth.authenticator import TENANT_VERSION
from gateway.auth.directories import POLICIES
from gateway.dashboard.page_request import PageRequest, paginate_operation

Release = Mapping[str, Any]  # a row of `find_releases`, or the answer of `get_release`

NAVIGATION_TIMEOUT = 1.0  # seconds; a page does not wait longer for its navigation
WITHDRAWN = frozenset({"held", "rolled_back", "retired"})
PAGE_SIZE = 8  # versions; one with two gates and all buttons has 2 kB, and a first visit at most 100 kB
MAX_RELEASES = 100  # of one answer
LISTS = ("in_flight", "all")


async def show_releases(page: PageRequest) -> web.Response:
    """The page. The query has `state` and `package_id` of `find_releases`."""
    state = page.request.query.get("state", "")
    query = {
        "state": state if state in LISTS else LISTS[0],
        "package_id": page.request.query.get("package_id", "").strip(),
    }
    part, values = await asyncio.gather(
        paginate_operation(page, "find_releases", "releases", size=PAGE_SIZE, **query), template_values(page)
    )
    return page.render("releases.html", part=part, query=query, **values)


async def template_values(page: PageRequest) -> Mapping[str, Any]:
    """The values that the template of a release needs beside the release; `machines` is empty if nobody knows them."""
    machines: Mapping[str, int] = {}
    if page.rings and page.may(Permission.SETTINGS_READ):
        with suppress(Problem):
            machines = (await page.server_information())["clients_by_ring"]
    functions = {"actions_for": partial(actions_for, page), "is_infected": is_infected}
    return {**functions, "machines": machines}


def is_infected(release: Release) -> bool:
    """Whether the scanner found malware in the file: the reason of a stop, or of a gate."""
    gates = [gate for ring in release["rings"] for gate in ring["gates"]]
    return any("scan_infected" in part["codes"] for part in (release, *gates))


async def fetch_in_flight(page: PageRequest, **query: str) -> Sequence[Release]:
    """The newest versions in flight, as many as one answer has."""
    releases: Sequence[Release] = (await page.fetch("find_releases", **query, limit=str(MAX_RELEASES)))["releases"]
    return releases


async def with_navigation(page: PageRequest) -> PageRequest:
    """The page with the rings and the number of versions in flight; without them if they are not known soon.

    Held versions count.
    """
    if page.may(Permission.CATALOG_READ):
        with suppress(Problem, TimeoutError):
            async with asyncio.timeout(NAVIGATION_TIMEOUT):
                policy, in_flight = await asyncio.gather(
                    page.request.app[POLICIES].find(page.caller, page.request[TENANT_VERSION]),
                    page.fetch("find_releases", limit="1"),
                )
                return replace(page, rings=policy.rings, releases=int(in_flight["total"]))
    return page


def actions_for(page: PageRequest, release: Release) -> Set[str]:
    """The actions that the user of a page may take on a version, and that make sense in its state."""
    if not page.may(Permission.RELEASE_APPROVE):
        return frozenset()
    status = release["status"]
    if status in WITHDRAWN:
        return {"resume"}
    if is_infected(release):
        return {"hold"}
    actions = {"hold", "resume" if status == "paused" else "pause"} if release["next_ring"] else {"hold"}
    if any(ring["offered"] for ring in release["rings"]):
        actions.add("roll_back")
    if is_ready(release):
        actions.add("promote")
    if needs_approval_of(release, page.caller.person):
        actions.add("approve")
    return actions


def needs_approval_of(release: Release, person: str) -> bool:
    """Whether a gate of a version waits for approvals and this person has not approved it yet."""
    is_own = release["published_by"] == person
    waiting = gates_of(release, "waiting")
    return not is_own and any(waits_for_approval(gate) and person not in gate["by"] for gate in waiting)


def waits_for_approval(gate: Mapping[str, Any]) -> bool:
    """Whether approvals let a gate pass: the gate of approvals, or another one whose finding people may accept."""
    return gate["state"] == "waiting" and "approvals" in gate["codes"]


def waits_for_scan(gate: Mapping[str, Any]) -> bool:
    """Whether the scanner will look at the file; an external installer waits for approvals."""
    return gate["gate"] == "scan" and "scan_external" not in gate["codes"]


def gates_of(release: Release, state: str) -> Sequence[Mapping[str, Any]]:
    """The gates in a state before the rings that a version has not entered; none of a withdrawn version."""
    if release["status"] in WITHDRAWN:
        return ()
    return [
        gate for ring in release["rings"] if not ring["offered"] for gate in ring["gates"] if gate["state"] == state
    ]


def is_ready(release: Release) -> bool:
    """Whether all gates of the next ring have passed, and the version waits only for somebody who promotes it."""
    gates = [gate for ring in release["rings"] if ring["ring"] == release["next_ring"] for gate in ring["gates"]]
    return release["status"] == "active" and bool(release["next_ring"]) and all(g["state"] == "passed" for g in gates)


@dataclass(frozen=True)
class Waiting:
    """The versions that wait for this user, or for something that the user should know of."""

    infected: Sequence[Release]
    for_approval: Sequence[Release]
    for_promotion: Sequence[Release]
    own_for_approval: Sequence[Release]
    for_scan: Sequence[Release]
    failed: Sequence[Release]
    held: Sequence[Release]
    paused: Sequence[Release]

    @property
    def any(self) -> bool:
        """Whether something waits."""
        return any(vars(self).values())


def waiting_for(page: PageRequest, releases: Sequence[Release]) -> Waiting:
    """The gates that versions in flight wait for, as far as they concern the user of the page."""
    person, may_release = page.caller.person, page.may(Permission.RELEASE_APPROVE)
    own = [row for row in releases if row["published_by"] == person]
    return Waiting(
        infected=[row for row in releases if is_infected(row)],
        for_approval=[row for row in releases if may_release and needs_approval_of(row, person)],
        for_promotion=[row for row in releases if may_release and is_ready(row)],
        own_for_approval=[row for row in own if any(map(waits_for_approval, gates_of(row, "waiting")))],
        for_scan=[row for row in releases if any(map(waits_for_scan, gates_of(row, "waiting")))],
        failed=[row for row in releases if gates_of(row, "failed")],
        held=[row for row in releases if row["status"] == "held"],
        paused=[row for row in releases if row["status"] == "paused"],
    )
