"""Looks up users of winget by their access tokens of Entra ID; caches them until the token ends."""

import base64
import time
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import NamedTuple

import orjson

from common.auth.entra_app import EntraApp
from common.auth.internal_tokens import Caller
from common.caching.response_cache import ResponseCache
from common.errors import NotAuthenticated, UpstreamProblem
from common.service_client.client import ServiceClient
from common.tenants import RingRule
from gateway.auth.rings import ring_of

TOKEN_LIMIT = 8190  # characters of one header
MAX_AGE = 86400.0  # seconds, longer than a token of Entra ID lives; `_Key` has what the tenant says about tokens
MAX_USERS = 20_000


@dataclass(frozen=True)
class _User:
    ring: str  # "" if no app role chooses one
    expires_at: float  # in seconds since 1970


class _Key(NamedTuple):
    """Everything that a user depends on. `token` is its digest."""

    tenant_id: str
    app: EntraApp | None
    ring_rules: tuple[RingRule, ...]
    token: bytes


class EntraDirectory:
    """Looks up users at auth_service. Raises Unavailable if it does not answer."""

    def __init__(self, auth_service: ServiceClient) -> None:
        self._auth_service = auth_service
        self._users: ResponseCache[_Key, _User] = ResponseCache(max_age=MAX_AGE, limit=MAX_USERS)

    async def identify(self, visitor: Caller, token: str, version: str | None) -> Caller:
        """The visitor as the user of a token, at a version of the tenant. Raises NotAuthenticated."""
        tenant = visitor.tenant
        key = _Key(tenant.tenant_id, tenant.entra, tenant.ring_rules, sha256(token.encode()).digest())
        user = await self._users.get_or_fetch(key, version, partial(self._fetch, visitor, token))
        if time.time() >= user.expires_at:
            raise NotAuthenticated("The token of Entra ID has expired.")
        return visitor.as_client("", ring_of(tenant, visitor.address, user.ring))

    async def _fetch(self, visitor: Caller, token: str) -> _User:
        try:
            found = await self._auth_service.json(visitor, "identify_entra_user", {"token": token})
        except UpstreamProblem as problem:
            if problem.status == NotAuthenticated.status:
                raise NotAuthenticated(problem.detail) from None
            raise
        return _User(found["ring"], found["expires_at"])


def is_entra_token(text: str) -> bool:
    """Whether a Bearer token has the header of a token of Entra ID. Sessions are signed with HS256."""
    part = text.partition(".")[0]
    try:
        header = orjson.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except ValueError:
        return False
    return isinstance(header, dict) and header.get("alg") == "RS256"
