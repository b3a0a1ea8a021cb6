"""The overview: numbers, downloads, publications, activity and the health of the services."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from aiohttp import web

from gateway.dashboard.page_request import PageRequest, client_names_of, or_none, package_names_of, targets_of
from gateway.dashboard.pages import releases
from gateway.dashboard.pages.administration import health_of_services
from gateway.dashboard.pages.rollout import RolloutKit
from gateway.forwarding.proxy import SERVICES
from gateway.operations import CATALOG, CLIENTS

RECENT = 5  # uploads, publications and actions
ENTRIES = 50  # entries of the audit log among which the actions are searched, because most may be sign-ins
DAYS = 30  # of the chart; the summary of catalog_service has as many
CHART_HEIGHT = 100  # units of the drawing; each day is 10 units wide
SESSION_OPERATIONS = frozenset({"login", "logout"})
PUBLICATION = "add_package_version"


@dataclass(frozen=True)
class Bar:
    """A day of the chart. `x`, `y` and `height` are units of the drawing, from its top left corner."""

    day: str
    downloads: int
    x: int
    y: float
    height: float


async def show_overview(page: PageRequest) -> web.Response:
    """The page. A part whose service does not answer is left out, and the services' health names the service."""
    services = page.request.app[SERVICES]
    information, uploads, entries, publications, summary, seen, in_flight, health = await asyncio.gather(
        or_none(page.server_information()),
        or_none(page.fetch("get_finished_uploads")),
        or_none(page.fetch("get_audit_log", limit=str(ENTRIES))),
        or_none(page.fetch("get_audit_log", limit=str(2 * RECENT), operation=PUBLICATION)),
        or_none(services[CATALOG].json(page.caller, "catalog_summary")),
        or_none(services[CLIENTS].json(page.caller, "clients_seen")),
        or_none(releases.fetch_in_flight(page)),
        health_of_services(page.request.app),
    )
    uploads = sorted(uploads or (), key=lambda upload: str(upload["finished_at"]), reverse=True)
    actions = [entry for entry in entries or () if entry["operation"] not in SESSION_OPERATIONS][:RECENT]
    published = [entry for entry in publications or () if entry["status"] < 400][:RECENT]
    return page.render(
        "overview.html",
        information=information,
        unassigned=len(uploads),
        uploads=uploads[:RECENT],
        actions=actions,
        client_names=await client_names_of(page, targets_of(actions, "client_id")),
        package_names=await package_names_of(page, targets_of([*actions, *published], "package_id")),
        publications=published,
        summary=summary,
        bars=chart_bars(summary["days"], datetime.now(UTC)) if summary else (),
        seen=seen,
        waiting=releases.waiting_for(page, in_flight or ()),
        not_ready=[service for service in health if service.status != "ready"],
        base_url=page.caller.base_url,
        kit=RolloutKit(page.caller),
    )


def chart_bars(downloads: Mapping[str, int], now: datetime) -> Sequence[Bar]:
    """The bars of the last 30 days, today last; `downloads` are numbers by day. The highest bar fills the height."""
    days = [(now - timedelta(days=DAYS - 1 - number)).date().isoformat() for number in range(DAYS)]
    highest = max([1, *(downloads.get(day, 0) for day in days)])
    bars = []
    for number, day in enumerate(days):
        height = round(downloads.get(day, 0) * CHART_HEIGHT / highest, 1)
        bars.append(Bar(day, downloads.get(day, 0), 10 * number, CHART_HEIGHT - height, height))
    return bars
