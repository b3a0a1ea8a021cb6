"""Looks up API tokens; caches what they may do for some seconds."""

import time
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from common.auth.api_tokens import USER_PREFIX, ApiToken
from common.auth.internal_tokens import Caller
from common.auth.roles import Role
from common.caching.response_cache import ResponseCache
from common.errors import Forbidden, NotAuthenticated, UpstreamProblem
from common.service_client.client import ServiceClient
from common.tenants import contains

MAX_AGE = 30.0  # seconds: the longest delay of a change whose new version did not reach Redis
MAX_TOKENS = 20_000


class TokenExpired(NotAuthenticated):
    code = "token_expired"
    text = "This API token has expired. An administrator can rotate it."


class TokenNetworkNotAllowed(Forbidden):
    code = "network_not_allowed"
    text = "This API token may not be used from your network address."


@dataclass(frozen=True)
class _Grant:
    """The rights of a token. `expires_at` is in seconds since 1970."""

    name: str
    roles: tuple[Role, ...]
    packages: tuple[str, ...]
    networks: tuple[str, ...]
    created_by: str
    expires_at: float


class TokenDirectory:
    """Looks up API tokens at auth_service. Raises Unavailable if it does not answer."""

    def __init__(self, auth_service: ServiceClient) -> None:
        self._auth_service = auth_service
        self._grants: ResponseCache[tuple[str, bytes], _Grant] = ResponseCache(max_age=MAX_AGE, limit=MAX_TOKENS)

    async def identify(self, visitor: Caller, text: str, version: str | None) -> Caller:
        """The visitor with the rights of a token.

        Raises NotAuthenticated for an unknown token, TokenExpired, or TokenNetworkNotAllowed.
        """
        key = visitor.tenant_id, sha256(text.encode(errors="surrogateescape")).digest()
        if (grant := self._grants.get(key, version)) is None:
            grant = await self._grants.get_or_fetch(key, version, partial(self._fetch, visitor, text))
        if time.time() >= grant.expires_at:
            raise TokenExpired
        if grant.networks and not contains(grant.networks, visitor.address):
            raise TokenNetworkNotAllowed
        return visitor.as_administrator(f"{USER_PREFIX}{grant.name}", "", grant.roles, grant.packages, grant.created_by)

    async def _fetch(self, visitor: Caller, text: str) -> _Grant:
        token = ApiToken.parse(text)  # A known token is not parsed again.
        try:
            found = await self._auth_service.json(visitor, "identify_token", vars(token))
        except UpstreamProblem as problem:
            if problem.status == 404:
                raise NotAuthenticated("The API token is not valid.") from None
            raise
        roles, packages, networks = (
            tuple(map(Role, found["role"])),
            tuple(found["package_ids"]),
            tuple(found["networks"]),
        )
        return _Grant(found["name"], roles, packages, networks, found["created_by"], found["expires_at"])
