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
from common.caching import ResponseCache
from common.errors import NotAuthenticated, UpstreamProblem
from common.service_client.client import ServiceClient

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
    rules: tuple[tuple[str, str], ...]
    token: bytes


class EntraDirectory:
    """Looks up users at auth_service. Raises Unavailable if it does not answer."""

    def __init__(self, auth_service: ServiceClient) -> None:
        self._auth_service = auth_service
        self._users: ResponseCache[_Key, _User] = ResponseCache(max_age=MAX_AGE, limit=MAX_USERS)

    async def identify(
        self, visitor: Caller, token: str, rules: tuple[tuple[str, str], ...], version: str | None
    ) -> Caller:
        """The visitor as the user of a token, at a version of the tenant. Raises NotAuthenticated.

        `rules` are pairs of an app role or group id and its ring. The caller's ring is the one that they choose.
        """
        key = _Key(visitor.tenant_id, visitor.tenant.entra, rules, sha256(token.encode()).digest())
        user = await self._users.get_or_fetch(key, version, partial(self._fetch, visitor, token, rules))
        if time.time() >= user.expires_at:
            raise NotAuthenticated("The token of Entra ID has expired.")
        return visitor.as_client("", user.ring)

    async def _fetch(self, visitor: Caller, token: str, rules: tuple[tuple[str, str], ...]) -> _User:
        form = {"token": token, "rules": rules}
        try:
            found = await self._auth_service.json(visitor, "identify_entra_user", form)
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
