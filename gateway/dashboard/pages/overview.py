"""The overview: numbers, downloads, publications, activity and the health of the services."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from gateway.app_keys import SERVICES
from gateway.dashboard.languages import _
from gateway.dashboard.page_request import PageRequest, or_none
from gateway.dashboard.pages.blacklist import client_names_of, package_names_of
from gateway.dashboard.pages.catalog import releases
from gateway.dashboard.pages.server import NAMES, STATUSES, health_of_services
from gateway.dashboard.rollout_kit import RolloutKit
from gateway.operations import CATALOG, CLIENTS

RECENT = 5  # uploads, publications and actions
ENTRIES = 50  # entries of the audit log among which the actions are searched, because most may be sign-ins
DAYS = 30  # of the chart; the summary of catalog_service has as many
CHART_HEIGHT = 100  # units of the drawing; each day is 10 units wide
SESSION_OPERATIONS = frozenset({"login", "logout"})
PUBLICATION = "add_package_version"
ACTIONS: Mapping[str, str] = {
    "add_package": _("Add package"),
    "edit_package": _("Edit package"),
    "delete_package": _("Delete package"),
    "set_package_active": _("Activate or deactivate package"),
    "add_package_version": _("Publish version"),
    "delete_package_version": _("Delete versions"),
    "approve_version": _("Approve version"),
    "promote_version": _("Promote version"),
    "pause_version": _("Pause version"),
    "resume_version": _("Resume version"),
    "hold_version": _("Hold version"),
    "roll_back_version": _("Roll back version"),
    "pin_version": _("Pin or unpin version"),
    "upload_package_version": _("Cancel upload"),
    "add_client": _("Add client"),
    "edit_client": _("Enable or disable client"),
    "delete_client": _("Delete client"),
    "rotate_client_token": _("Replace client token"),
    "add_blacklist_entry": _("Add blacklist entry"),
    "delete_blacklist_entry": _("Delete blacklist entry"),
    "add_blacklist_group": _("Add blacklist group"),
    "delete_blacklist_group": _("Delete blacklist group"),
    "publish_client": _("Publish client program"),
    "edit_settings": _("Edit settings"),
    "retention": _("Retention"),
    "add_user": _("Add user"),
    "edit_user": _("Change roles"),
    "delete_user": _("Delete user"),
    "change_password": _("Change password"),
    "add_token": _("Add API token"),
    "rotate_token": _("Rotate API token"),
    "delete_token": _("Delete API token"),
    "check_gate": _("Check gate"),
}


@dataclass(frozen=True)
class Bar:
    """A day of the chart. `x`, `y` and `height` are units of the drawing, from its top left corner."""

    day: str
    downloads: int
    x: int
    y: float
    height: float


async def show(page: PageRequest) -> web.Response:
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
        client_names=await client_names_of(page, _targets(actions, "client_id")),
        package_names=await package_names_of(page, _targets([*actions, *published], "package_id")),
        action_names=ACTIONS,
        publications=published,
        summary=summary,
        bars=chart_bars(summary["days"], datetime.now(UTC)) if summary else (),
        seen=seen,
        waiting=releases.waiting_for(page, in_flight or ()),
        not_ready=[service for service in health if service.status != "ready"],
        names=NAMES,
        statuses=STATUSES,
        base_url=page.caller.base_url,
        kit=RolloutKit(page.caller),
    )


async def show_rollout(page: PageRequest) -> web.Response:
    """The commands and scripts for a fleet of machines."""
    return page.render("rollout.html", kit=RolloutKit(page.caller))


def chart_bars(downloads: Mapping[str, int], now: datetime) -> Sequence[Bar]:
    """The bars of the last 30 days, today last; `downloads` are numbers by day. The highest bar fills the height."""
    days = [(now - timedelta(days=DAYS - 1 - number)).date().isoformat() for number in range(DAYS)]
    highest = max([1, *(downloads.get(day, 0) for day in days)])
    bars = []
    for number, day in enumerate(days):
        height = round(downloads.get(day, 0) * CHART_HEIGHT / highest, 1)
        bars.append(Bar(day, downloads.get(day, 0), 10 * number, CHART_HEIGHT - height, height))
    return bars


def _targets(entries: Sequence[Mapping[str, Any]], name: str) -> Sequence[str]:
    """The different values of the targets under a name."""
    return list(dict.fromkeys(entry["target"][name] for entry in entries if entry["target"].get(name)))
