"""Looks up users, API tokens and users of Entra ID at auth_service; caches what they may do."""

import base64
import time
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import NamedTuple

import orjson

from common.auth.internal_tokens import Caller
from common.auth.roles import Role
from common.auth.sessions import Session
from common.auth.signing import USER_PREFIX, ApiToken
from common.caching import ResponseCache
from common.errors import Forbidden, NotAuthenticated, UpstreamProblem
from common.service_client.client import ServiceClient
from common.tenants import EntraApp, contains

MAX_AGE = 30.0  # seconds: the longest delay of a change whose new version did not reach Redis
ENTRA_MAX_AGE = 86400.0  # seconds, longer than a token of Entra ID lives; `_EntraKey` has what the tenant says about it
ENTRA_TOKEN_LIMIT = 8190  # characters of one header
MAX_USERS = 20_000  # of each kind


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


@dataclass(frozen=True)
class _EntraUser:
    ring: str  # "" if no app role chooses one
    expires_at: float  # in seconds since 1970


class _EntraKey(NamedTuple):
    """Everything that a user depends on. `token` is its digest."""

    tenant_id: str
    app: EntraApp | None
    rules: tuple[tuple[str, str], ...]
    token: bytes


class UserDirectory:
    """Looks up users at auth_service. Raises Unavailable if it does not answer."""

    def __init__(self, auth_service: ServiceClient) -> None:
        self._auth_service = auth_service
        self._roles: ResponseCache[tuple[str, str], tuple[Role, ...]] = ResponseCache(max_age=MAX_AGE, limit=MAX_USERS)
        self._grants: ResponseCache[tuple[str, bytes], _Grant] = ResponseCache(max_age=MAX_AGE, limit=MAX_USERS)
        self._entra: ResponseCache[_EntraKey, _EntraUser] = ResponseCache(max_age=ENTRA_MAX_AGE, limit=MAX_USERS)

    async def by_session(self, visitor: Caller, session: Session, version: str | None) -> Caller:
        """The visitor as the user of a session, with the user's roles at a version of the tenant.

        Raises NotAuthenticated if the user was deleted.
        """
        key = visitor.tenant_id, session.username
        if (roles := self._roles.get(key, version)) is None:
            roles = await self._roles.get_or_fetch(key, version, partial(self._fetch_roles, visitor, session))
        if not roles:
            raise NotAuthenticated("The user of this session was deleted.")
        return visitor.as_administrator(session.username, session.session_id, roles)

    async def by_token(self, visitor: Caller, text: str, version: str | None) -> Caller:
        """The visitor with the rights of an API token.

        Raises NotAuthenticated for an unknown token, TokenExpired, or TokenNetworkNotAllowed.
        """
        key = visitor.tenant_id, sha256(text.encode(errors="surrogateescape")).digest()
        if (grant := self._grants.get(key, version)) is None:
            grant = await self._grants.get_or_fetch(key, version, partial(self._fetch_grant, visitor, text))
        if time.time() >= grant.expires_at:
            raise TokenExpired
        if grant.networks and not contains(grant.networks, visitor.address):
            raise TokenNetworkNotAllowed
        return visitor.as_administrator(f"{USER_PREFIX}{grant.name}", "", grant.roles, grant.packages, grant.created_by)

    async def by_entra_token(
        self, visitor: Caller, token: str, rules: tuple[tuple[str, str], ...], version: str | None
    ) -> Caller:
        """The visitor as a user of winget with an access token of Entra ID. Raises NotAuthenticated.

        `rules` are pairs of an app role or group id and its ring. The caller's ring is the one that they choose.
        """
        key = _EntraKey(visitor.tenant_id, visitor.tenant.entra, rules, sha256(token.encode()).digest())
        user = await self._entra.get_or_fetch(key, version, partial(self._fetch_entra, visitor, token, rules))
        if time.time() >= user.expires_at:
            raise NotAuthenticated("The token of Entra ID has expired.")
        return visitor.as_client("", user.ring)

    async def _fetch_roles(self, visitor: Caller, session: Session) -> tuple[Role, ...]:
        user = visitor.as_administrator(session.username, session.session_id, ())
        return tuple(map(Role, (await self._auth_service.json(user, "find_roles"))["roles"]))

    async def _fetch_grant(self, visitor: Caller, text: str) -> _Grant:
        token = ApiToken.parse(text)  # A known token is not parsed again.
        try:
            found = await self._auth_service.json(visitor, "identify_token", vars(token))
        except UpstreamProblem as problem:
            if problem.status == 404:
                raise NotAuthenticated("The API token is not valid.") from None
            raise
        roles, packages, networks = map(Role, found["role"]), found["package_ids"], found["networks"]
        rights = tuple(roles), tuple(packages), tuple(networks)
        return _Grant(found["name"], *rights, found["created_by"], found["expires_at"])

    async def _fetch_entra(self, visitor: Caller, token: str, rules: tuple[tuple[str, str], ...]) -> _EntraUser:
        form = {"token": token, "rules": rules}
        try:
            found = await self._auth_service.json(visitor, "identify_entra_user", form)
        except UpstreamProblem as problem:
            if problem.status == NotAuthenticated.status:
                raise NotAuthenticated(problem.detail) from None
            raise
        return _EntraUser(found["ring"], found["expires_at"])


def is_entra_token(text: str) -> bool:
    """Whether a Bearer token has the header of a token of Entra ID. Sessions are signed with HS256."""
    part = text.partition(".")[0]
    try:
        header = orjson.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except ValueError:
        return False
    return isinstance(header, dict) and header.get("alg") == "RS256"
