"""Whether each service is ready, as it says itself, in words that name no address and no error of a driver's."""

import asyncio
from dataclasses import dataclass

from aiohttp import web

from common.errors import Problem
from common.http.readiness import CHECK_TIMEOUT, READINESS
from common.service_client.client import ServiceClient
from gateway.app_keys import SERVICES
from gateway.operations import GATEWAY

TIMEOUT = CHECK_TIMEOUT + 0.5  # seconds: a service waits so long for what it needs, and tells


@dataclass(frozen=True)
class Health:
    """How a service stands: `ready`, `not ready`, `stopping` or `away`; and what it lacks, by name."""

    service: str
    status: str
    missing: tuple[str, ...] = ()


async def health_of_all(app: web.Application) -> list[Health]:
    """The gateway, which is the one that asks, and every service behind it."""
    others = [_asked(name, service) for name, service in app[SERVICES].items()]
    return list(await asyncio.gather(_own(app), *others))


async def _own(app: web.Application) -> Health:
    missing = await app[READINESS].missing()
    return Health(GATEWAY, "not ready" if missing else "ready", tuple(missing))


async def _asked(name: str, service: ServiceClient) -> Health:
    try:
        told = await service.readiness(timeout=TIMEOUT)
        return Health(name, str(told["status"]), tuple(told.get("missing", ())))
    except (Problem, LookupError, TypeError):
        return Health(name, "away")
