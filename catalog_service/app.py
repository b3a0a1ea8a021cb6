"""The application of catalog_service."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import chain

from aiohttp import web
from prometheus_client.core import Metric

from catalog_service import app_keys
from catalog_service.catalog.cache import CatalogCache
from catalog_service.catalog.reader import read_entries
from catalog_service.catalog.routes import rendered_package
from catalog_service.catalog.routes import routes as catalog_routes
from catalog_service.identities.service import Identities
from catalog_service.logos.service import LogoDecoder
from catalog_service.model.releases import Gate
from catalog_service.outgoing.client_registry import ClientRegistry
from catalog_service.outgoing.upload_service import UploadService
from catalog_service.packages.routes import routes as package_routes
from catalog_service.packages.service import Packages
from catalog_service.releases.routes import routes as release_routes
from catalog_service.releases.service import Releases
from catalog_service.retention.routes import routes as retention_routes
from catalog_service.retention.service import Retention
from catalog_service.settings import CatalogSettings
from catalog_service.statistics import Statistics
from catalog_service.store import SCHEMA, MongoCatalogStore
from catalog_service.versions.routes import routes as version_routes
from catalog_service.versions.service import Listings, Versions
from catalog_service.winget.manifest import SourceEntries
from catalog_service.winget.routes import routes as winget_routes
from catalog_service.winget.search import SearchLimit, WingetSearch
from common.concurrency.background import repeating
from common.events import Events
from common.events.broker import open_events
from common.http.server import READINESS, Service, service_app
from common.mongo import open_database
from common.mongo.schema import migrate, register_version
from common.redis import TenantVersions, open_redis
from common.service_client.client import open_service
from common.telemetry.metrics import METRICS, Metrics, gauges

SWEEP_PAUSE = 5  # seconds
RELEASE_PAUSE, INFECTED_PAUSE = 1, 15  # seconds
RETENTION_PAUSE = 60  # seconds
DROPPED_INDEXES = "Search indexes dropped for another tenant's, and read again by the next search."


def create_app(settings: CatalogSettings, events: Events | None = None) -> web.Application:
    """The application; without `events`, which services in one process share, it opens RabbitMQ."""
    # The router tries the routes in order; the searches of a fleet are most of the requests.
    features = (winget_routes, catalog_routes, package_routes, version_routes, release_routes, retention_routes)
    key, access_log = settings.catalog_service_key, settings.access_log
    app = service_app("catalog_service", key, [*chain(*features)], connect, access_log=access_log)
    app[app_keys.SETTINGS] = settings
    if events is not None:
        app[app_keys.EVENTS] = events
    return app


async def connect(app: web.Application) -> AsyncIterator[None]:
    """Open the connections of the service; they are closed in reverse order when the app stops."""
    settings, readiness = app[app_keys.SETTINGS], app[READINESS]
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        database = await enter(open_database(settings.mongo_url, settings.database, "catalog_service"))
        redis = await enter(open_redis(settings.redis_url))
        upload_service = await enter(
            open_service(settings.upload_service_url, service="upload_service", keys=settings.upload_service_key)
        )
        client_registry = await enter(
            open_service(settings.client_registry_url, service="client_registry", keys=settings.client_registry_key)
        )
        auth_service = await enter(
            open_service(settings.auth_service_url, service="auth_service", keys=settings.auth_service_key)
        )
        readiness.check("mongodb", lambda: database.command("ping"))
        register_version(app[METRICS], database)
        await enter(readiness.preparing("schema", partial(migrate, database, SCHEMA)))

        tenant_versions = TenantVersions(redis)
        store = app[app_keys.STORE] = MongoCatalogStore(
            database, uploads_age=settings.finished_uploads_age, invalidate_during=tenant_versions.invalidate_during
        )
        installers = UploadService(upload_service)
        releases = app[app_keys.RELEASES] = Releases(
            store.releases, store.policies, store.versions, installers, auth_service
        )
        identities = Identities(store.identities)
        versions = app[app_keys.VERSIONS] = Versions(store.versions, store.uploads, installers, releases, identities)
        retention = app[app_keys.RETENTION] = Retention(store.retention, store.revisions.state, releases, versions)
        app[app_keys.STATISTICS] = Statistics(installers, store)
        packages = app[app_keys.PACKAGES] = Packages(store.packages, versions, store.versions.rule_versions, identities)
        app[app_keys.CLIENT_REGISTRY] = ClientRegistry(client_registry)
        app[app_keys.LOGOS] = LogoDecoder()
        read_names = partial(read_entries, partial(store.packages.read, without="manifest"), store.versions.names)
        catalogs = app[app_keys.CATALOG_CACHE] = CatalogCache(
            store.revisions.state,
            read_names,
            store.policies.rings,
            rendered_package,
            disk=settings.catalog_disk,
            memory=settings.catalog_memory,
        )
        register_metrics(app[METRICS], catalogs, store.releases.waiting)
        read_whole = partial(read_entries, partial(store.packages.read, without="logo"), store.versions.versions)
        search = app[app_keys.WINGET_SEARCH] = WingetSearch(
            store.revisions.state,
            read_whole,
            store.policies.rings,
            memory=settings.search_memory,
            on_evict=app[METRICS].counter("pkgrepo_search_indexes_dropped_total", DROPPED_INDEXES).inc,
        )
        app[app_keys.SEARCH_LIMIT] = SearchLimit()
        app[app_keys.SOURCE_ENTRIES] = SourceEntries(read_whole, search, store.packages.logos, store.policies.rings)
        app[app_keys.LISTINGS] = Listings(catalogs, versions)

        if app_keys.EVENTS not in app:
            app[app_keys.EVENTS] = await enter(open_events(settings.rabbitmq_url, app[METRICS]))
        await readiness.then(lambda: versions.listen(app[app_keys.EVENTS], app[METRICS]))
        for name, work, seconds in (
            ("sweeper", packages.sweep, SWEEP_PAUSE),
            ("sweeper", versions.sweep, SWEEP_PAUSE),
            ("releases", releases.run_due, RELEASE_PAUSE),
            ("infected", releases.hold_infected, INFECTED_PAUSE),
            ("retention", retention.run_due, RETENTION_PAUSE),
        ):
            await enter(repeating(name, work, partial(asyncio.sleep, seconds), after=readiness.prepared))
        yield


def register_metrics(
    metrics: Metrics, catalogs: CatalogCache, count_waiting: Callable[[], Awaitable[Mapping[str, int]]]
) -> None:
    """`count_waiting` returns the numbers of versions of all tenants by the gate that they wait for."""

    async def waiting() -> Sequence[Metric]:
        counts, text = await count_waiting(), "Versions whose next ring waits for the gate."
        return [gauges("pkgrepo_versions_waiting", text, [(gate, counts.get(gate, 0)) for gate in Gate], label="gate")]

    metrics.add_source("releases", waiting)
    service = metrics.service
    metrics.gauge("pkgrepo_catalog_bytes", "Bytes of cached catalogs.", lambda: catalogs.size, service=service)
    metrics.gauge("pkgrepo_catalogs", "Cached catalogs.", lambda: catalogs.count, service=service)


SERVICE = Service("catalog_service", CatalogSettings, create_app)
