"""Builds the gateway's application."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from aiohttp import web

from common.auth.sessions import Sessions
from common.concurrency.background import repeating
from common.concurrency.limits import FairConcurrencyLimit
from common.events import Events
from common.events.broker import open_events
from common.http.connection_limits import CATCH_ALL_ROUTE, expect
from common.http.server import READINESS, Service, watched_app
from common.redis import open_redis
from common.service_client.client import open_service
from common.telemetry.metrics import METRICS, Metrics
from gateway.auth.authenticator import AUTHENTICATOR, SESSIONS, Authenticator
from gateway.auth.directories import (
    CLIENT_DIRECTORY,
    POLICIES,
    TENANTS,
    USER_DIRECTORY,
    ClientDirectory,
    PolicyDirectory,
    TenantDirectory,
    UserDirectory,
)
from gateway.caching.catalogs import CATALOGS, CatalogCache
from gateway.caching.package_responses import PACKAGE_RESPONSES, PackageResponseCache
from gateway.dashboard.pages.live_events import EVENT_HUB, EVENTS, EventHub
from gateway.dashboard.static_files import STATIC_FILES, StaticFiles
from gateway.dashboard.templating import set_up_templates
from gateway.forwarding.audit import AUDIT_RECORDER, AuditRecorder
from gateway.forwarding.proxy import FORM_FIELDS, LONG_FORMS, MAX_LONG_FORMS, SERVICES, FormFields
from gateway.operations import AUTH, CATALOG, CLIENTS, UPLOAD
from gateway.routes import dispatch
from gateway.settings import SETTINGS, GatewaySettings

UPLOAD_FINISHED = "upload.finished"


def create_app(settings: GatewaySettings, events: Events | None = None) -> web.Application:
    """Create the application. `events` are for services in one process; without them, RabbitMQ delivers events."""
    app = watched_app("gateway", connect, access_log=settings.access_log)
    app[SETTINGS] = settings
    app[STATIC_FILES] = StaticFiles()
    app[FORM_FIELDS] = FormFields(app[STATIC_FILES].document)
    app[EVENT_HUB] = EventHub()
    app[LONG_FORMS] = FairConcurrencyLimit(MAX_LONG_FORMS)
    app.on_shutdown.append(_close_event_streams)
    if events is not None:
        app[EVENTS] = events
    set_up_templates(app)
    app[CATCH_ALL_ROUTE] = app.router.add_route("*", "/{path:.*}", dispatch, expect_handler=expect)
    if settings.public_url.startswith("https:"):
        app.on_response_prepare.append(_require_https)
    return app


async def connect(app: web.Application) -> AsyncIterator[None]:
    """Open the gateway's connections, and close them in reverse order when the app stops."""
    settings = app[SETTINGS]
    addresses = {
        AUTH: (settings.auth_service_url, settings.auth_service_key),
        CATALOG: (settings.catalog_service_url, settings.catalog_service_key),
        UPLOAD: (settings.upload_service_url, settings.upload_service_key),
        CLIENTS: (settings.client_registry_url, settings.client_registry_key),
    }
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(open_redis(settings.redis_url))
        app[READINESS].check("redis", redis.ping)
        services = app[SERVICES] = {
            name: await stack.enter_async_context(open_service(address, service=name, keys=signing_keys))
            for name, (address, signing_keys) in addresses.items()
        }
        recorder = app[AUDIT_RECORDER] = AuditRecorder(services[AUTH])
        stack.push_async_callback(recorder.close)
        await stack.enter_async_context(repeating("audit", recorder.retry_pending, recorder.pause))
        sessions = app[SESSIONS] = Sessions(
            redis, keys=settings.session_key, lifetime=settings.session_lifetime, idle=settings.session_idle
        )
        tenants = app[TENANTS] = TenantDirectory(services[AUTH])
        users = app[USER_DIRECTORY] = UserDirectory(services[AUTH])
        clients = app[CLIENT_DIRECTORY] = ClientDirectory(services[CLIENTS])
        policies = app[POLICIES] = PolicyDirectory(services[CATALOG])
        app[AUTHENTICATOR] = Authenticator(settings, sessions, tenants, users, clients, policies)
        app[PACKAGE_RESPONSES] = PackageResponseCache(services[CATALOG], clients)
        catalogs = app[CATALOGS] = CatalogCache(services[CATALOG], clients, budget=settings.catalog_memory)
        _add_gauges(app[METRICS], catalogs, recorder)
        if EVENTS not in app and settings.rabbitmq_url:
            app[EVENTS] = await stack.enter_async_context(open_events(settings.rabbitmq_url, app[METRICS]))
        if EVENTS in app:
            await app[EVENTS].listen_ephemeral(UPLOAD_FINISHED, app[EVENT_HUB].publish)
        yield


def _add_gauges(metrics: Metrics, catalogs: CatalogCache, recorder: AuditRecorder) -> None:
    service = metrics.service
    metrics.gauge("pkgrepo_catalog_bytes", "Bytes of catalogs in memory.", lambda: catalogs.used_bytes, service=service)
    metrics.gauge("pkgrepo_catalogs", "Catalogs in memory.", lambda: catalogs.count, service=service)
    pending = "Entries that the audit log has not taken yet."
    metrics.gauge("pkgrepo_audit_waiting", pending, lambda: recorder.pending_count)


async def _close_event_streams(app: web.Application) -> None:
    app[EVENT_HUB].close()


async def _require_https(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Strict-Transport-Security"] = "max-age=31536000"


SERVICE = Service("gateway", GatewaySettings, create_app)
