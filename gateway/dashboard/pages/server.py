"""The page of the server: readiness of the services, and usage of the tenant."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from common.errors import Problem
from common.http.readiness import CHECK_TIMEOUT, READINESS
from common.service_client.client import ServiceClient
from gateway.app_keys import SERVICES
from gateway.dashboard.languages import _
from gateway.dashboard.page_request import PageRequest
from gateway.operations import GATEWAY

TIMEOUT = CHECK_TIMEOUT + 0.5  # seconds; a service waits CHECK_TIMEOUT for its own dependencies
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
    "unavailable": _("Unavailable"),
}
MISSING: Mapping[str, str] = {
    "mongodb": _("The database is unavailable."),
    "redis": _("Redis is unavailable."),
    "schema": _("The database schema is not ready."),
    "installers": _("The installer folder is unavailable."),
    "storage": _("The installer folder does not belong to this database."),
    "object_storage": _("The object storage is unavailable or does not belong to this database."),
}
MISSING_OTHER = _("A dependency is unavailable.")


@dataclass(frozen=True)
class Health:
    """The readiness of a service: a key of STATUSES, and the names of missing dependencies. It has no address."""

    service: str
    status: str
    missing: tuple[str, ...] = ()


async def show(page: PageRequest) -> web.Response:
    """The page; it also works without the services that know the usage."""
    health, (information, problem) = await asyncio.gather(health_of_services(page.request.app), _information(page))
    return page.render(
        "server.html",
        health=health,
        information=information,
        problem=problem,
        names=NAMES,
        statuses=STATUSES,
        missing={name: MISSING.get(name, MISSING_OTHER) for service in health for name in service.missing},
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
        readiness = await service.readiness(timeout=TIMEOUT)
        return Health(name, str(readiness["status"]), tuple(readiness.get("missing", ())))
    except (Problem, LookupError, TypeError):
        return Health(name, "unavailable")
