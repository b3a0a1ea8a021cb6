"""Assembles client_registry."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, closing
from functools import partial

from aiohttp import web
from prometheus_client.core import Metric

from client_registry.blacklist.store import MongoBlacklistStore
from client_registry.clients.csv_import import ClientImport
from client_registry.clients.enrollment import Enrollment
from client_registry.clients.service import Clients, ClientTokens, SystemResolver
from client_registry.clients.store import MongoClientStore
from client_registry.releases.service import Releases
from client_registry.releases.store import MongoReleaseStore
from client_registry.routes import (
    BLACKLIST,
    CLIENT_IMPORT,
    CLIENTS,
    ENROLLMENT,
    RELEASES,
    SETTINGS,
    TENANT_VERSIONS,
    routes,
)
from client_registry.settings import RegistrySettings
from client_registry.store import SCHEMA
from common.concurrency.background import repeating
from common.http.server import READINESS, Service, service_app
from common.mongo import open_database
from common.mongo.schema import migrate, register_version
from common.redis import TenantVersions, WindowCounts, open_redis
from common.service_client.client import open_service
from common.telemetry.metrics import METRICS, gauges

SWEEP_PAUSE = 30  # seconds


def create_app(settings: RegistrySettings) -> web.Application:
    app = service_app("client_registry", settings.client_registry_key, routes, connect, access_log=settings.access_log)
    app[SETTINGS] = settings
    return app


async def connect(app: web.Application) -> AsyncIterator[None]:
    """Open the connections of client_registry; they close in reverse order when the app stops."""
    settings, readiness = app[SETTINGS], app[READINESS]
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(
            open_database(settings.mongo_url, settings.database, "client_registry")
        )
        redis = await stack.enter_async_context(open_redis(settings.redis_url))
        upload_service = await stack.enter_async_context(
            open_service(settings.upload_service_url, service="upload_service", keys=settings.upload_service_key)
        )
        readiness.check("mongodb", lambda: database.command("ping"))
        register_version(app[METRICS], database)
        await stack.enter_async_context(readiness.preparing("schema", partial(migrate, database, SCHEMA)))

        resolver = stack.enter_context(closing(SystemResolver()))
        app[TENANT_VERSIONS] = TenantVersions(redis)
        store = MongoClientStore(database)
        tokens = ClientTokens(settings.client_token_key)
        clients = app[CLIENTS] = Clients(store, tokens, resolver)
        app[CLIENT_IMPORT] = ClientImport(store, tokens)
        counts = WindowCounts(redis, "enrolled")
        app[ENROLLMENT] = Enrollment(store, tokens, clients, counts, settings.enrollments_per_hour)
        app[METRICS].add_source("clients", partial(_client_metrics, store))
        app[BLACKLIST] = MongoBlacklistStore(database)
        releases = app[RELEASES] = Releases(MongoReleaseStore(database), upload_service)
        await stack.enter_async_context(
            repeating("sweeper", releases.sweep, lambda: asyncio.sleep(SWEEP_PAUSE), after=readiness.prepared)
        )
        yield


async def _client_metrics(store: MongoClientStore) -> Sequence[Metric]:
    return [gauges("pkgrepo_clients", "Clients of a tenant.", (await store.counts()).items())]


SERVICE = Service("client_registry", RegistrySettings, create_app)
