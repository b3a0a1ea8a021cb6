"""client_registry, put together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from client_registry.blacklist import Blacklist
from client_registry.blacklist_store import MongoBlacklistStore
from client_registry.clients import Clients
from client_registry.hostnames import SystemResolver
from client_registry.keys import BLACKLIST, CLIENTS, RELEASES, SETTINGS
from client_registry.release_store import MongoReleaseStore
from client_registry.releases import Releases
from client_registry.routes import routes
from client_registry.settings import RegistrySettings
from client_registry.store import INDEXES, MongoClientStore
from client_registry.tokens import ClientTokens
from client_registry.uploads import UploadService
from common.client import open_service
from common.errors import Problem
from common.mongo import MongoError, make_indexes, open_database
from common.server import READINESS, Service, service_app
from common.telemetry import log

SWEEP_PAUSE = 30  # seconds


def create_app(settings: RegistrySettings) -> web.Application:
    app = service_app("client_registry", settings.internal_key.get_secret_value(), routes, connect)
    app[SETTINGS] = settings
    return app


async def connect(app: web.Application) -> AsyncIterator[None]:
    """Open what client_registry talks to; closed in reverse when the app stops."""
    settings, readiness = app[SETTINGS], app[READINESS]
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_database(settings.mongo_url, settings.database))
        upload_service = await stack.enter_async_context(
            open_service(
                settings.upload_service_url,
                service="upload_service",
                key=settings.internal_key.get_secret_value(),
            )
        )
        readiness.check("mongodb", lambda: database.command("ping"))
        await readiness.prepare("indexes", lambda: make_indexes(database, INDEXES))

        resolver = SystemResolver()
        stack.callback(resolver.close)
        tokens = ClientTokens(settings.client_token_key.get_secret_value())
        app[CLIENTS] = Clients(MongoClientStore(database), tokens, resolver)
        app[BLACKLIST] = Blacklist(MongoBlacklistStore(database))
        app[RELEASES] = Releases(MongoReleaseStore(database), UploadService(upload_service))
        await stack.enter_async_context(_sweeping(app[RELEASES]))
        yield


@asynccontextmanager
async def _sweeping(releases: Releases) -> AsyncIterator[None]:
    """Sweep from time to time as long as the block lasts."""
    sweeping = asyncio.create_task(_sweep(releases))
    try:
        yield
    finally:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)


async def _sweep(releases: Releases) -> None:
    while True:
        await asyncio.sleep(SWEEP_PAUSE)
        try:
            await releases.sweep()
        except (MongoError, Problem) as error:
            log.warning("sweep_failed", error=type(error).__name__)


SERVICE = Service("client_registry", RegistrySettings, create_app)
