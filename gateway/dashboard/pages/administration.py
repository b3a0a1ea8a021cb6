"""The pages of users, API tokens, the own account, the settings, the audit log, and the state of the server."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any
from urllib.parse import urlencode

import aiohttp_jinja2
from aiohttp import web

from common.auth.roles import USER_ROLES, Role
from common.errors import Problem
from common.http.server import CHECK_TIMEOUT, READINESS
from common.service_client.client import ServiceClient
from gateway.dashboard.page_request import (
    PAGE_SIZE,
    PageRequest,
    client_names_of,
    or_none,
    package_names_of,
    targets_of,
)
from gateway.dashboard.templating import _
from gateway.forwarding.proxy import SERVICES
from gateway.operations import AUTH, GATEWAY

# The name of each role, and what it allows. Only tokens can be an enroller, and no token an administrator.
ROLES: Mapping[Role, tuple[str, str]] = {
    Role.VIEWER: (_("Viewer"), _("Sees packages, clients and settings.")),
    Role.PUBLISHER: (_("Publisher"), _("Also uploads, edits and deletes packages and versions.")),
    Role.APPROVER: (_("Approver"), _("Also approves releases.")),
    Role.AUDITOR: (_("Auditor"), _("Also reads the audit log.")),
    Role.ENROLLER: (_("Enroller"), _("Only registers machines, for the script of a roll-out.")),
    Role.ADMINISTRATOR: (_("Administrator"), _("Has all rights.")),
}
OF_USERS = {role: ROLES[role] for role in USER_ROLES}
OF_TOKENS = {role: words for role, words in ROLES.items() if role is not Role.ADMINISTRATOR}
MAX_USER, MAX_OPERATION = 128, 64  # characters
MINUTES_OF_DAY, MAX_DAYS = 1440, 366
OUTCOMES = ("done", "refused")
# Targets without a meaning for readers. The page shows them on request.
IDS = ("uid", "uids", "client_id", "token_id", "entry_id", "group_id", "group", "sha256", "server_filename", "file_id")
READINESS_TIMEOUT = CHECK_TIMEOUT + 0.5  # seconds; a service waits CHECK_TIMEOUT for its own dependencies


async def show_users(page: PageRequest) -> web.Response:
    """The users of the tenant, with the names of the API tokens that they created."""
    names: dict[str, list[str]] = defaultdict(list)
    for token in await page.fetch("get_tokens") if page.may("tokens:write") else ():
        names[token["created_by"]].append(token["name"])
    return page.render("users.html", users=await page.fetch("get_users"), roles=OF_USERS, tokens=names)


async def show_company_login(page: PageRequest) -> web.Response:
    """The identity provider of the tenant, as a form, with a test of it."""
    return page.render("company_login.html", login=await page.fetch("get_company_login"), roles=OF_USERS)


async def show_tokens(page: PageRequest) -> web.Response:
    """The API tokens of the tenant. A secret is shown only by the script that receives it."""
    tokens = marked_as_expired(await page.fetch("get_tokens"))
    return page.render("tokens.html", tokens=tokens, roles=OF_TOKENS, base_url=page.caller.base_url)


def marked_as_expired(tokens: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """API tokens with the field `is_expired`."""
    now = datetime.now(UTC)
    return [{**token, "is_expired": datetime.fromisoformat(token["expires_at"]) <= now} for token in tokens]


async def show_account(page: PageRequest) -> web.Response:
    """The roles of the user, and the form that changes the own password if the user has one."""
    user = await or_none(page.request.app[SERVICES][AUTH].json(page.caller, "find_own_user"))
    name = page.session.username
    return page.render("account.html", roles=ROLES, user=user or {"username": name, "login": "password"})


async def show_settings(page: PageRequest) -> web.Response:
    """The settings of the administrators, and the limits of the operator."""
    information = await page.server_information()
    return page.render("settings.html", information=information, own_address=page.caller.ip)


async def show_release_settings(page: PageRequest) -> web.Response:
    """Rings with their gates, the rules of rings, and retention: as fields, and as JSON."""
    information = await page.server_information()
    settings = information["settings"]
    values = {name: settings[name] for name in ("ring_rules", "gates", "retention")}
    texts = {name: json.dumps(value, indent=2, ensure_ascii=False) if value else "" for name, value in values.items()}
    gates = [(ring, settings["gates"].get(ring, {})) for ring in settings["rings"]]
    machines = information["clients_by_ring"]
    rings = [
        {**each, "name": ring, "machines": machines.get(ring), "signature": _signers(each.get("signature", ""))}
        for ring, each in gates
    ]
    return page.render("release_settings.html", settings=settings, rings=rings, texts=texts)


def _signers(signature: str | Mapping[str, str] | Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
    """The rules of a signature gate, in any of its forms."""
    if isinstance(signature, str):
        return [{}] if signature else []
    return [signature] if isinstance(signature, Mapping) else signature


async def show_audit(page: PageRequest) -> web.Response:
    """The page. The query has `user`, `outcome` and `before` of `get_audit_log`; `operation` may be words of actions.

    Its `first` and `last` are dates, both included, where the time is `minutes` ahead of UTC; `days` are the last ones
    until today instead. What cannot be read is left out.
    """
    query = page.request.query
    filters = {
        "user": query.get("user", "").strip()[:MAX_USER],
        "operation": query.get("operation", "").strip()[:MAX_OPERATION],
        "outcome": query.get("outcome", "") if query.get("outcome") in OUTCOMES else "",
    }
    minutes, days = (_number(query.get(name, "")) for name in ("minutes", "days"))
    zone = timezone(timedelta(minutes=minutes if abs(minutes) < MINUTES_OF_DAY else 0))
    first, last = (_date(query.get(name, "")) for name in ("first", "last"))
    if 0 < days <= MAX_DAYS:
        first, last = datetime.now(zone).date() - timedelta(days=days - 1), None
    times = {"since": _start_of(first, zone) if first else "", "until": _start_of(last, zone, days=1) if last else ""}
    before, selection = query.get("before", ""), {**filters, **times}
    selection["operation"] = _operations_of(page, filters["operation"])
    entries = await page.fetch("get_audit_log", limit=str(PAGE_SIZE + 1), before=before, **selection)
    shown = entries[:PAGE_SIZE]
    client_names, package_names = await asyncio.gather(
        client_names_of(page, targets_of(shown, "client_id")),
        package_names_of(page, targets_of(shown, "package_id", "package_ids")),
    )
    sent = {name: value for name, value in selection.items() if value}
    return page.render(
        "audit.html",
        entries=shown,
        client_names=client_names,
        package_names=package_names or {},
        older_url=_url(page, before=str(entries[PAGE_SIZE - 1]["sequence"])) if len(entries) > PAGE_SIZE else "",
        newest_url=_url(page, before="") if before else "",
        download_url=f"{page.home}/operations/get_audit_log?{urlencode({'format': 'jsonl', **sent})}",
        ids=IDS,
        filters={**filters, "first": first or "", "last": last or "", "minutes": minutes},
    )


def _date(text: str) -> date | None:
    with suppress(ValueError):
        return date.fromisoformat(text)
    return None


def _number(text: str) -> int:
    with suppress(ValueError):
        return int(text[:5])
    return 0


def _start_of(day: date, zone: timezone, *, days: int = 0) -> str:
    with suppress(OverflowError):
        return datetime.combine(day + timedelta(days=days), time(), zone).astimezone(UTC).isoformat()
    return ""


def _operations_of(page: PageRequest, words: str) -> str:
    """The operations whose names or actions have these words, with commas; the words themselves if there is none."""
    template = aiohttp_jinja2.get_env(page.request.app).get_template("administration.html")
    shared: Any = template.make_module({"language": page.language})
    text = words.casefold()
    if not text or text in shared.action_names:
        return text
    texts = {name: f"{name.replace('_', ' ')} {action}".casefold() for name, action in shared.action_names.items()}
    return ",".join(name for name, action in texts.items() if text in action) or words


def _url(page: PageRequest, *, before: str) -> str:
    return str(page.request.rel_url.update_query(before=before))


@dataclass(frozen=True)
class Health:
    """The readiness of a service: its status, and the names of missing dependencies. It has no address."""

    service: str
    status: str
    missing: tuple[str, ...] = ()


async def show_server(page: PageRequest) -> web.Response:
    """The page; it also works without the services that know the usage."""
    health, (information, problem) = await asyncio.gather(health_of_services(page.request.app), _information(page))
    return page.render(
        "server.html",
        health=health,
        information=information,
        problem=problem,
        base_url=page.caller.base_url,
        deployment=page.caller.deployment,
    )


async def _information(page: PageRequest) -> tuple[Mapping[str, object] | None, Problem | None]:
    try:
        return await page.server_information(), None
    except Problem as problem:
        return None, problem


async def health_of_services(app: web.Application) -> list[Health]:
    """The readiness of the gateway and of one process of each service."""
    missing = await app[READINESS].missing()
    own = Health(GATEWAY, "not ready" if missing else "ready", tuple(missing))
    return [own, *await asyncio.gather(*(_health(name, service) for name, service in app[SERVICES].items()))]


async def _health(name: str, service: ServiceClient) -> Health:
    try:
        readiness = await service.readiness(timeout=READINESS_TIMEOUT)
        return Health(name, str(readiness["status"]), tuple(readiness.get("missing", ())))
    except (Problem, LookupError, TypeError):
        return Health(name, "unavailable")
