"""The gateway, put together."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from aiohttp import web

from common.auth.sessions import Sessions
from common.concurrency.background import repeating
from common.concurrency.limits import FairConcurrencyLimit
from common.events import Events
from common.events.broker import open_events
from common.http.connection_limits import expect
from common.http.readiness import READINESS
from common.http.server import Service, watched_app
from common.http.single_route import CATCH_ALL_ROUTE
from common.redis import open_redis
from common.service_client.client import open_service
from common.telemetry.metrics import METRICS
from gateway.app_keys import (
    AUTHENTICATOR,
    CATALOGS,
    EVENT_HUB,
    EVENTS,
    LISTINGS,
    PAGES,
    RECORDER,
    RELEASES,
    SERVICES,
    SESSIONS,
    SETTINGS,
    TENANTS,
)
from gateway.auth.authenticator import Authenticator
from gateway.auth.client_directory import ClientDirectory
from gateway.caching.catalogs import Catalogs
from gateway.caching.client_releases import Releases
from gateway.caching.package_responses import Listings
from gateway.dashboard.templating import set_up_templates
from gateway.forwarding.audit import AuditRecorder
from gateway.forwarding.proxy import LONG_FORMS, LONG_FORMS_AT_ONCE
from gateway.metrics import show
from gateway.operations import AUTH, CATALOG, CLIENTS, UPLOAD
from gateway.pages import Pages
from gateway.routes import dispatch
from gateway.routing.tenant_directory import TenantDirectory
from gateway.settings import GatewaySettings
from gateway.upload_events import EventHub

UPLOAD_FINISHED = "upload.finished"


def create_app(settings: GatewaySettings, events: Events | None = None) -> web.Application:
    """The application; `events` are given where all services share a process, else they travel over RabbitMQ."""
    app = watched_app("gateway", connect, access_log=settings.access_log)
    app[SETTINGS] = settings
    app[PAGES] = Pages()
    app[EVENT_HUB] = EventHub()
    app[LONG_FORMS] = FairConcurrencyLimit(LONG_FORMS_AT_ONCE)
    app.on_shutdown.append(_end_what_lasts)
    if events is not None:
        app[EVENTS] = events
    set_up_templates(app)
    app[CATCH_ALL_ROUTE] = app.router.add_route("*", "/{path:.*}", dispatch, expect_handler=expect)
    if settings.public_url.startswith("https:"):
        app.on_response_prepare.append(_stay_on_https)
    return app


async def connect(app: web.Application) -> AsyncIterator[None]:
    """Open what the gateway talks to; closed in reverse when the app stops."""
    settings = app[SETTINGS]
    fellows = {
        AUTH: (settings.auth_service_url, settings.auth_service_key),
        CATALOG: (settings.catalog_service_url, settings.catalog_service_key),
        UPLOAD: (settings.upload_service_url, settings.upload_service_key),
        CLIENTS: (settings.client_registry_url, settings.client_registry_key),
    }
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(open_redis(settings.redis_url))
        app[READINESS].check("redis", redis.ping)
        services = {
            name: await stack.enter_async_context(open_service(address, service=name, keys=keys))
            for name, (address, keys) in fellows.items()
        }
        app[SERVICES] = services
        recorder = app[RECORDER] = AuditRecorder(services[AUTH])
        stack.push_async_callback(recorder.close)
        await stack.enter_async_context(repeating("audit", recorder.retry_pending, recorder.pause))
        app[SESSIONS] = Sessions(
            redis,
            keys=settings.session_key,
            lifetime=settings.session_lifetime,
            idle=settings.session_idle,
        )
        app[TENANTS] = TenantDirectory(services[AUTH])
        clients = ClientDirectory(services[CLIENTS])
        app[AUTHENTICATOR] = Authenticator(app[SESSIONS], clients)
        app[RELEASES] = Releases(services[CLIENTS])
        app[LISTINGS] = Listings(services[CATALOG], clients)
        app[CATALOGS] = Catalogs(services[CATALOG], clients, budget=settings.catalog_memory)
        show(app[METRICS], app[CATALOGS], recorder)
        if EVENTS not in app and settings.rabbitmq_url:
            app[EVENTS] = await stack.enter_async_context(open_events(settings.rabbitmq_url))
        if EVENTS in app:
            await app[EVENTS].listen_ephemeral(UPLOAD_FINISHED, app[EVENT_HUB].tell)
        yield


async def _end_what_lasts(app: web.Application) -> None:
    app[EVENT_HUB].close()


async def _stay_on_https(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Strict-Transport-Security"] = "max-age=31536000"


SERVICE = Service("gateway", GatewaySettings, create_app)
