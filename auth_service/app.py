"""Assembles auth_service."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

from aiohttp import web

from auth_service.app_keys import (
    AUDIT_LOG,
    ENTRA,
    LOGIN,
    LOGIN_METRICS,
    OIDC,
    SETTINGS,
    TENANTS,
    TOKENS,
    USERS,
)
from auth_service.audit.chain import AuditSigner
from auth_service.audit.service import Audit
from auth_service.audit.store import MongoAuditStore
from auth_service.backups.store import MongoBackupStore
from auth_service.entra.service import EntraTokens
from auth_service.login.service import Login
from auth_service.metrics import LoginMetrics, register_metrics
from auth_service.oidc.client import ProviderClient
from auth_service.oidc.service import OidcSignIn
from auth_service.oidc.store import MongoProviderStore, RedisSignIns
from auth_service.routes import routes
from auth_service.settings import AuthSettings
from auth_service.store import SCHEMA
from auth_service.tenants.service import Tenants
from auth_service.tenants.store import MongoTenantStore
from auth_service.throttle.service import Throttle
from auth_service.throttle.store import RedisFailureCounts, RedisKnownNetworks
from auth_service.tokens.service import Tokens
from auth_service.tokens.store import MongoTokenStore
from auth_service.users.passwords import Passwords
from auth_service.users.service import Users
from auth_service.users.store import MongoUserStore
from common.auth.sessions import Sessions
from common.http.server import READINESS, Service, service_app
from common.mongo import open_database
from common.mongo.schema import migrate, register_version
from common.redis import TenantVersions, open_redis
from common.telemetry.metrics import METRICS


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
        providers, sign_ins = MongoProviderStore(database), RedisSignIns(redis, settings.session_lifetime)
        app[OIDC] = OidcSignIn(providers, sign_ins, ProviderClient(), app[USERS], app[LOGIN], sessions, throttle)
        app[TENANTS] = Tenants(MongoTenantStore(database), versions)
        app[ENTRA] = EntraTokens(app[TENANTS], settings.entra_authority)
        app[TOKENS] = Tokens(MongoTokenStore(database), versions)
        app[LOGIN_METRICS] = LoginMetrics(app[METRICS])
        register_metrics(app[METRICS], app[TENANTS], sessions, MongoBackupStore(database))
        yield


SERVICE = Service("auth_service", AuthSettings, create_app)
