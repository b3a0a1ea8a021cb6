"""Identity providers in MongoDB; sign-ins and sessions of providers in Redis."""

import time
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

import orjson
from pymongo import IndexModel
from pymongo.errors import DuplicateKeyError

from auth_service.oidc.model import PendingSignIn, Provider
from common.auth.roles import Role
from common.auth.sessions import Session
from common.mongo import Indexes, MongoDatabase
from common.redis import Redis

PROVIDER_INDEXES: Indexes = {"providers": [IndexModel(["tenant_id"], unique=True)]}
PENDING_LIFETIME = 600  # seconds that a user may take at the provider
LOGOUT_TOKEN_LIFETIME = 900  # seconds that a used logout token is remembered; no token is accepted for as long
NOT_COMPARED = {"client_secret", "allowed_networks"}  # by a change that names what it replaces
ENDED = "ended"  # beside the sessions of a provider's session that was logged out

# KEYS: a sign-in. Two callbacks at once must not both get it.
_TAKE = """
local text = redis.call('GET', KEYS[1])
redis.call('DEL', KEYS[1])
return text
"""


class MongoProviderStore:
    """One document per tenant with an identity provider. The secret is needed to sign in, so it is not hashed."""

    def __init__(self, database: MongoDatabase, tenant_networks: tuple[str, ...] | None = ()) -> None:
        """`tenant_networks`: private networks that providers of administrators may be in; None: those do not count."""
        self._providers = database["providers"]
        self.tenant_networks = tenant_networks

    async def find(self, tenant_id: str) -> Provider | None:
        document = await self._providers.find_one({"tenant_id": tenant_id}, {"_id": False})
        if document is None:
            return None
        default = document["default_role"]
        parsed = {
            "role_map": tuple((value, Role(role)) for value, role in document["role_map"]),
            "default_role": Role(default) if default else None,
            "allowed_networks": tuple(document["allowed_networks"]),
        }
        provider = Provider(**{**document, **parsed})
        if not provider.by_tenant:
            return provider
        # The operator's settings of today count, not those of the day when it was set.
        networks = self.tenant_networks
        return None if networks is None else replace(provider, allowed_networks=networks)

    async def put(self, provider: Provider) -> None:
        """Set or replace the provider of a tenant."""
        await self._providers.replace_one({"tenant_id": provider.tenant_id}, asdict(provider), upsert=True)

    async def put_instead(self, before: Provider, provider: Provider) -> bool:
        """Set the provider of a tenant; False if it is not as `before` any more, secret apart.

        A `before` without an issuer stands for none.
        """
        known = {name: value for name, value in asdict(before).items() if name not in NOT_COMPARED}
        try:
            await self._providers.replace_one({"tenant_id": provider.tenant_id} | known, asdict(provider), upsert=True)
        except DuplicateKeyError:
            return False
        return True

    async def delete(self, tenant_id: str) -> bool:
        return (await self._providers.delete_one({"tenant_id": tenant_id})).deleted_count == 1


class RedisSignIns:
    """Sign-ins that have begun, and sessions of providers, for a while. Raises RedisError if Redis does not answer."""

    def __init__(self, redis: "Redis", session_lifetime: int) -> None:
        self._redis = redis
        self._session_lifetime = session_lifetime
        self._take: Any = redis.register_script(_TAKE)

    async def add(self, tenant_id: str, state: str, pending: PendingSignIn) -> None:
        """Keep the sign-in that a browser began."""
        await self._redis.set(_key(tenant_id, "state", state), orjson.dumps(pending).decode(), ex=PENDING_LIFETIME)

    async def take(self, tenant_id: str, state: str) -> PendingSignIn | None:
        """The sign-in of a state, once; None if it expired, was taken before, or is of another tenant."""
        text = await self._take(keys=[_key(tenant_id, "state", state)])
        return PendingSignIn(**orjson.loads(text)) if text else None

    async def is_logout_token_used(self, tenant_id: str, token_id: str) -> bool:
        return bool(await self._redis.exists(_key(tenant_id, "logout", token_id)))

    async def keep_logout_token(self, tenant_id: str, token_id: str) -> None:
        """Keep a used token, so that nobody uses it again."""
        await self._redis.set(_key(tenant_id, "logout", token_id), "1", ex=LOGOUT_TOKEN_LIFETIME)

    async def add_session(self, session: Session, provider_session: str) -> bool:
        """Keep a session for the logout of the provider's; False if that has ended."""
        key, value = _key(session.tenant_id, "sid", provider_session), f"{session.username} {session.session_id}"
        await self._redis.zadd(key, {value: time.time()})
        await self._redis.expire(key, self._session_lifetime)
        return ENDED not in await self._redis.zrange(key, 0, -1)

    async def end_sessions(self, tenant_id: str, provider_session: str) -> list[Session]:
        """Mark a provider's session as ended; the sessions that it opened."""
        key = _key(tenant_id, "sid", provider_session)
        await self._redis.zadd(key, {ENDED: time.time()})
        await self._redis.expire(key, self._session_lifetime)
        values = [str(value).split() for value in await self._redis.zrange(key, 0, -1) if value != ENDED]
        return [Session(tenant_id, username, session_id, 0) for username, session_id in values]


def _key(tenant_id: str, kind: str, secret: str) -> str:
    # The beginning is that of all sessions of the tenant, which end with it. No user has an empty name.
    return f"sessions:{{{tenant_id}:}}:{kind}:{sha256(secret.encode('utf-8', 'surrogatepass')).hexdigest()}"
