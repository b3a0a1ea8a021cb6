"""Identity providers in MongoDB, and the sign-ins that browsers began in Redis."""

from dataclasses import asdict
from typing import Any

import orjson
from pymongo import IndexModel

from auth_service.oidc.model import PendingSignIn, Provider
from common.auth.roles import Role
from common.mongo import Indexes, MongoDatabase
from common.redis import Redis

PROVIDER_INDEXES: Indexes = {"providers": [IndexModel(["tenant_id"], unique=True)]}
PENDING_LIFETIME = 600  # seconds that a user may take at the provider

# KEYS: a sign-in. Two callbacks at once must not both get it.
_TAKE = """
local text = redis.call('GET', KEYS[1])
redis.call('DEL', KEYS[1])
return text
"""


class MongoProviderStore:
    """One document per tenant with an identity provider. The secret is needed to sign in, so it is not hashed."""

    def __init__(self, database: MongoDatabase) -> None:
        self._providers = database["providers"]

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
        return Provider(**{**document, **parsed})

    async def put(self, provider: Provider) -> None:
        """Set or replace the provider of a tenant."""
        await self._providers.replace_one({"tenant_id": provider.tenant_id}, asdict(provider), upsert=True)

    async def delete(self, tenant_id: str) -> bool:
        return (await self._providers.delete_one({"tenant_id": tenant_id})).deleted_count == 1


class RedisPendingSignIns:
    """The sign-ins that browsers began, by `state`. Raises RedisError if Redis does not answer."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis
        self._take: Any = redis.register_script(_TAKE)

    async def add(self, state: str, pending: PendingSignIn) -> None:
        await self._redis.set(f"sessions:sign_in:{state}", orjson.dumps(pending).decode(), ex=PENDING_LIFETIME)

    async def take(self, state: str) -> PendingSignIn | None:
        """The sign-in of a state, once; None if it expired or was taken before."""
        text = await self._take(keys=[f"sessions:sign_in:{state}"])
        return PendingSignIn(**orjson.loads(text)) if text else None
