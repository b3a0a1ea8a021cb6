"""The server: what it is, how much of it the tenant uses, and whether each service is ready."""

import asyncio
from collections.abc import Mapping

from aiohttp import web

from common.errors import Problem
from gateway.dashboard.health import health_of_all
from gateway.dashboard.languages import _
from gateway.dashboard.page_request import PageRequest

NAMES: Mapping[str, str] = {
    "gateway": _("Gateway: API and dashboard"),
    "auth_service": _("Tenants, users and the audit log"),
    "catalog_service": _("Packages and versions"),
    "upload_service": _("Installers and storage"),
    "client_registry": _("Clients and the blacklist"),
}
STATUSES: Mapping[str, str] = {
    "ready": _("Ready"),
    "not ready": _("Not ready"),
    "stopping": _("Stopping"),
    "away": _("Unavailable"),
}
LACKS: Mapping[str, str] = {
    "mongodb": _("The database is unavailable."),
    "redis": _("Redis is unavailable."),
    "schema": _("The database schema is not ready."),
    "installers": _("The installer folder is unavailable."),
    "storage": _("The installer folder does not belong to this database."),
    "object_storage": _("The object storage is unavailable or does not belong to this database."),
}
UNKNOWN_LACK = _("A dependency is unavailable.")


async def show(visit: PageRequest) -> web.Response:
    """The page; it is there, too, while the services that know the figures are not."""
    health, (information, problem) = await asyncio.gather(health_of_all(visit.request.app), _information(visit))
    return visit.render(
        "server.html",
        health=health,
        information=information,
        problem=problem,
        names=NAMES,
        statuses=STATUSES,
        lacks={name: LACKS.get(name, UNKNOWN_LACK) for service in health for name in service.missing},
        base_url=visit.caller.base_url,
        deployment=visit.caller.deployment,
    )


async def _information(visit: PageRequest) -> tuple[dict[str, object] | None, Problem | None]:
    try:
        return await visit.ask("server_information"), None
    except Problem as problem:
        return None, problem
