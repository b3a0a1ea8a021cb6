"""The overview: numbers, downloads, publications, activity and the health of the services."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from gateway.dashboard.page_request import PageRequest, client_names_of, or_none, package_names_of, targets_of
from gateway.dashboard.pages import releases
from gateway.dashboard.pages.administration import health_of_services
from gateway.dashboard.pages.rollout import RolloutKit
from gateway.forwarding.proxy import SERVICES
from gateway.operations import CATALOG, CLIENTS

RECENT = 5  # uploads, publications and actions
ENTRIES = 50  # entries of the audit log among which the actions are searched, because most may be sign-ins
RANGES = (7, 30, 365)  # days of the chart
DAYS = 30  # of the chart, if nobody chose others
NEARLY_FULL = 0.9  # of the storage
EXPIRY_NOTICE = timedelta(days=14)  # before the end of an API token
CHART_HEIGHT = 100  # units of the drawing; each day is 10 units wide
SESSION_OPERATIONS = frozenset({"login", "logout"})
PUBLICATION = "add_package_version"


@dataclass(frozen=True)
class Bar:
    """Some days of the chart, from `day` on. `x`, `y` and `height` are units of the drawing, from its top left."""

    day: str
    downloads: int
    x: int
    y: float
    height: float


async def show_overview(page: PageRequest) -> web.Response:
    """The page. A part whose service does not answer is left out, and the services' health names the service."""
    services, chosen = page.request.app[SERVICES], page.request.query.get("days", "")
    days = int(chosen) if chosen in map(str, RANGES) else DAYS
    information, uploads, entries, publications, summary, seen, in_flight, tokens, health = await asyncio.gather(
        or_none(page.server_information()),
        or_none(page.fetch("get_finished_uploads")),
        or_none(page.fetch("get_audit_log", limit=str(ENTRIES))),
        or_none(page.fetch("get_audit_log", limit=str(2 * RECENT), operation=PUBLICATION)),
        or_none(services[CATALOG].json(page.caller, "catalog_summary", {"days": days})),
        or_none(services[CLIENTS].json(page.caller, "clients_seen")),
        or_none(releases.fetch_in_flight(page)),
        or_none(page.fetch("get_tokens")),
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
        days=days,
        ranges=RANGES,
        bars=chart_bars(summary["days"], datetime.now(UTC), days) if summary else (),
        seen=seen,
        waiting=releases.waiting_for(page, in_flight or ()),
        is_nearly_full=information is not None and is_nearly_full(information),
        expiring=[token for token in tokens or () if expires_soon(token, datetime.now(UTC))],
        not_ready=[service for service in health if service.status != "ready"],
        base_url=page.caller.base_url,
        kit=RolloutKit(page.caller),
    )


def is_nearly_full(information: Mapping[str, Any]) -> bool:
    """Whether little of the tenant's storage is left."""
    quota, stored = information["storage_quota"], information["storage_used"] + information["storage_reserved"]
    return quota is not None and stored >= NEARLY_FULL * quota


def expires_soon(token: Mapping[str, Any], now: datetime) -> bool:
    """Whether an API token ends soon, or has ended."""
    return bool(token["expires_at"]) and datetime.fromisoformat(token["expires_at"]) < now + EXPIRY_NOTICE


def chart_bars(downloads: Mapping[str, int], now: datetime, days: int) -> Sequence[Bar]:
    """The bars of the last days, today last: one for each day, of more than a month for each seven days.

    `downloads` are numbers by day. The highest bar fills the height.
    """
    step = 1 if days <= DAYS else 7
    dates = [(now - timedelta(days=ago)).date().isoformat() for ago in reversed(range(days))]
    parts = [dates[max(0, end - step) : end] for end in range(days, 0, -step)][::-1]
    numbers = [sum(downloads.get(day, 0) for day in part) for part in parts]
    heights = [round(number * CHART_HEIGHT / max([1, *numbers]), 1) for number in numbers]
    rows = enumerate(zip(parts, numbers, heights, strict=True))
    return [Bar(part[0], number, 10 * place, CHART_HEIGHT - height, height) for place, (part, number, height) in rows]
