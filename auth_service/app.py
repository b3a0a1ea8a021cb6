"""Assembles auth_service."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial

from aiohttp import web
from prometheus_client.core import GaugeMetricFamily, Metric

from auth_service.audit.service import Audit
from auth_service.audit.store import AuditSigner, MongoAuditStore
from auth_service.oidc.client import ProviderClient
from auth_service.oidc.entra import EntraTokens
from auth_service.oidc.service import OidcSignIn, Providers
from auth_service.oidc.store import MongoProviderStore, RedisSignIns
from auth_service.routes import (
    AUDIT_LOG,
    ENTRA,
    LOGIN,
    LOGIN_METRICS,
    OIDC,
    PROVIDERS,
    SETTINGS,
    TENANTS,
    TOKENS,
    USERS,
    routes,
)
from auth_service.settings import AuthSettings
from auth_service.store import SCHEMA, MongoBackupStore
from auth_service.tenants.service import Tenants
from auth_service.tenants.store import MongoTenantStore
from auth_service.users.login import Login, LoginMetrics
from auth_service.users.service import Passwords, Users
from auth_service.users.store import MongoUserStore
from auth_service.users.throttle_store import RedisFailureCounts, RedisKnownNetworks, Throttle
from auth_service.users.token_store import Tokens
from common.auth.sessions import Sessions
from common.http.server import READINESS, Service, service_app
from common.mongo import open_database
from common.mongo.schema import migrate, register_version
from common.redis import TenantVersions, open_redis
from common.telemetry.metrics import METRICS, Metrics, gauges


def create_app(settings: AuthSettings) -> web.Application:
    app = service_app("auth_service", settings.auth_service_key, routes, connect, access_log=settings.access_log)
    app[SETTINGS] = settings
    return app


async def connect(app: web.Application) -> AsyncIterator[None]:
    """Open the connections of auth_service; they close in reverse order when the app stops."""
    settings, readiness = app[SETTINGS], app[READINESS]
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_database(settings.mongo_url, settings.database, "auth_service"))
        redis = await stack.enter_async_context(open_redis(settings.redis_url))
        readiness.check("mongodb", lambda: database.command("ping"))
        prepare = partial(migrate, database, SCHEMA)
        register_version(app[METRICS], database)
        await stack.enter_async_context(readiness.preparing("schema", prepare))
        readiness.check("redis", redis.ping)

        passwords, throttle = Passwords(), Throttle(RedisFailureCounts(redis), RedisKnownNetworks(redis))
        lifetime, idle = settings.session_lifetime, settings.session_idle
        sessions = Sessions(redis, keys=settings.session_key, lifetime=lifetime, idle=idle)
        versions = TenantVersions(redis)
        app[USERS] = Users(MongoUserStore(database), passwords, sessions, throttle, versions)
        app[AUDIT_LOG] = Audit(MongoAuditStore(database), AuditSigner(settings.audit_key.get_secret_value()))
        app[LOGIN] = Login(app[USERS], passwords, throttle, sessions, app[AUDIT_LOG])
        networks = settings.company_login_networks if settings.company_login_by_tenants else None
        providers, sign_ins = MongoProviderStore(database, networks), RedisSignIns(redis, settings.session_lifetime)
        client = ProviderClient()
        app[OIDC] = OidcSignIn(providers, sign_ins, client, app[USERS], app[LOGIN], sessions, throttle)
        app[PROVIDERS] = Providers(providers, client, app[USERS])
        app[TENANTS] = Tenants(MongoTenantStore(database), versions)
        app[ENTRA] = EntraTokens(app[TENANTS], settings.entra_authority)
        app[TOKENS] = Tokens(database, versions)
        app[LOGIN_METRICS] = LoginMetrics(app[METRICS])
        _register_metrics(app[METRICS], app[TENANTS], sessions, MongoBackupStore(database))
        yield


def _register_metrics(metrics: Metrics, tenants: Tenants, sessions: Sessions, backups: MongoBackupStore) -> None:
    """Add the metrics that are read from the stores."""

    async def limits() -> Sequence[Metric]:
        all_tenants = await tenants.list()
        quotas = [(each.tenant_id, each.storage_quota) for each in all_tenants if each.storage_quota is not None]
        clients = [(each.tenant_id, each.max_clients) for each in all_tenants if each.max_clients is not None]
        return [
            gauges("pkgrepo_storage_quota_bytes", "Bytes of installers that a tenant may have.", quotas),
            gauges("pkgrepo_clients_max", "Clients that a tenant may have.", clients),
        ]

    async def session_count() -> Sequence[Metric]:
        return [GaugeMetricFamily("pkgrepo_sessions", "Sessions of administrators.", await sessions.count())]

    async def last_backup() -> Sequence[Metric]:
        at = await backups.last_success()
        help_text = "When `pkgrepo backup` last succeeded, in seconds since 1970; 0 if it never did."
        return [GaugeMetricFamily("pkgrepo_backup_last_success", help_text, at.timestamp() if at else 0)]

    metrics.add_source("limits", limits)
    metrics.add_source("sessions", session_count)
    metrics.add_source("backups", last_backup)


SERVICE = Service("auth_service", AuthSettings, create_app)
