"""auth_service as two replicas on one database and Redis."""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from typing import Any
from uuid import uuid4

from aiohttp import ClientSession
from motor.motor_asyncio import AsyncIOMotorClient

from auth_service.app import create_app
from auth_service.routes import TENANTS, USERS
from auth_service.settings import AuthSettings
from auth_service.tenants.service import Tenants
from auth_service.users.service import Users
from auth_service.users.throttle_store import NETWORK_FAILURE_LIMIT
from common.auth.internal_tokens import Caller
from common.auth.sessions import Session, Sessions
from common.errors import NotAuthenticated
from common.http.server import serving
from common.mongo import Document
from common.redis import open_redis
from common.service_client.client import HEADER_LIMIT
from tests.support.api import Answer, ServiceApi
from tests.support.factories import KEY, KEYS, make_caller, make_tenant

PASSWORD = "a password for tests"
WRONG_PASSWORD = "not this password"
UNREACHABLE_REDIS = "redis://127.0.0.1:1/0"  # a port that nobody listens on


@dataclass(frozen=True)
class Auth:
    """A running auth_service: `api` calls its first replica, `replica` the second.

    `tenants` and `users` are the services of the first replica; operator commands use the same classes.
    """

    api: ServiceApi
    replica: ServiceApi
    tenants: Tenants
    users: Users
    sessions: Sessions
    settings: AuthSettings

    async def call(self, caller: Caller, method: str, operation: str, *segments: str, **request: Any) -> Answer:
        return await self.api.call(caller, method, operation, *segments, **request)

    async def tenant(self, *usernames: str, **settings: Any) -> Caller:
        """Create a tenant with these users, by default `admin`. Returns the first user as caller."""
        caller = make_caller(make_tenant(**settings), ip=unique_address(), username=(usernames or ("admin",))[0])
        await self.tenants.create(caller.tenant)
        for username in usernames or ("admin",):
            await self.add_user(caller, username)
        return caller

    async def add_user(self, caller: Caller, username: str, password: str = PASSWORD) -> None:
        answer = await self.call(caller, "POST", "add_user", data={"username": username, "password": password})
        assert answer.status == 201, answer.body

    async def login(self, caller: Caller, username: str = "admin", password: str = PASSWORD) -> Answer:
        return await self.call(caller, "POST", "login", data={"username": username, "password": password})

    async def fail_logins(self, caller: Caller, username: str = "admin", *, times: int = NETWORK_FAILURE_LIMIT) -> None:
        """Fail to log in this many times."""
        for _ in range(times):
            assert (await self.login(caller, username, WRONG_PASSWORD)).status == 401

    async def token(self, caller: Caller, username: str = "admin", password: str = PASSWORD) -> str:
        answer = await self.login(caller, username, password)
        assert answer.status == 200, answer.body
        token: str = answer.body["message"]
        return token

    async def session(self, caller: Caller, token: str) -> Session | None:
        """The session of a token, as the gateway checks it. None if it has ended."""
        try:
            return await self.sessions.check(caller.tenant_id, token)
        except NotAuthenticated:
            return None

    async def audit_log(self, caller: Caller, **query: Any) -> list[dict[str, Any]]:
        answer = await self.call(caller, "GET", "get_audit_log", params=query)
        assert answer.status == 200, answer.body
        entries: list[dict[str, Any]] = answer.body
        return entries


def unique_address() -> str:
    """An address that no other test uses, because failed logins are counted by address."""
    return str(IPv6Address(0x20010DB8 << 96 | secrets.randbits(96)))


def from_other_address(caller: Caller) -> Caller:
    """The same caller from another address."""
    return replace(caller, ip=unique_address())


@asynccontextmanager
async def serving_auth(mongo_url: str, redis_url: str, /, **settings: Any) -> AsyncIterator[Auth]:
    """Run auth_service on its own database."""
    async with AsyncExitStack() as stack:
        auth_settings = AuthSettings(
            **{
                "internal_key": KEYS,
                "session_key": KEYS,
                "audit_key": KEY,
                "mongo_url": mongo_url,
                "redis_url": redis_url,
                "database": f"test_auth_{uuid4().hex[:12]}",
                **settings,
            }
        )
        apps = [create_app(auth_settings) for _ in range(2)]
        addresses = [await stack.enter_async_context(serving(app, "127.0.0.1:0")) for app in apps]
        session = await stack.enter_async_context(ClientSession(max_field_size=HEADER_LIMIT))
        redis = await stack.enter_async_context(open_redis(auth_settings.redis_url))
        mongo: AsyncIOMotorClient[Document] = AsyncIOMotorClient(mongo_url)
        stack.callback(mongo.close)
        stack.push_async_callback(mongo.drop_database, auth_settings.database)
        api, replica = [ServiceApi(session, address, "auth_service") for address in addresses]
        sessions = Sessions(redis, keys=KEYS, lifetime=auth_settings.session_lifetime, idle=auth_settings.session_idle)
        yield Auth(api, replica, apps[0][TENANTS], apps[0][USERS], sessions, auth_settings)
