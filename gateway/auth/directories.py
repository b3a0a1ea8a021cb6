"""Lookups at the services that a request needs before it is executed: its tenant, its caller, and the caller's ring.

Each directory caches for some seconds, by the version of the tenant that was read before.
"""

import base64
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
from aiohttp import web

from common.auth.internal_tokens import Caller, hidden_digest
from common.auth.roles import Role
from common.auth.sessions import Session
from common.auth.signing import USER_PREFIX, ApiToken
from common.caching import FifoCache, ResponseCache
from common.errors import Forbidden, NotAuthenticated, NotFound, UpstreamProblem
from common.service_client.client import ServiceClient, raise_problem
from common.tenants import Address, EntraApp, RingRules, Tenant, contains, is_tenant_id

# In seconds. The first two are the longest delay of a change whose new version did not reach Redis.
MAX_AGE = 30.0
TENANT_MAX_AGE = 3.0
RELEASE_MAX_AGE = 1.0  # The response may have a signed address, which expires.
ENTRA_MAX_AGE = 86400.0  # longer than a token of Entra ID lives; `_EntraKey` has what the tenant says about it
ENTRA_TOKEN_LIMIT = 8190  # characters of one header
MAX_TENANTS = 10_000
MAX_USERS = 20_000  # of each kind
MAX_CLIENTS = 20_000


class TokenExpired(NotAuthenticated):
    code = "token_expired"
    text = "This API token has expired. An administrator can rotate it."


class TokenNetworkNotAllowed(Forbidden):
    code = "network_not_allowed"
    text = "This API token may not be used from your network address."


@dataclass(frozen=True)
class _Grant:
    """The rights of a token. `expires_at` is in seconds since 1970."""

    token_id: str
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
        rights = grant.roles, grant.packages, grant.created_by, grant.token_id
        return visitor.as_administrator(f"{USER_PREFIX}{grant.name}", "", *rights)

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
        return _Grant(token.token_id, found["name"], *rights, found["created_by"], found["expires_at"])

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


class NoSuchTenant(NotFound):
    code = "tenant_not_found"
    text = "There is no such tenant."


class NetworkNotAllowed(Forbidden):  # section 5.2
    code = "network_not_allowed"
    text = "This tenant does not take requests from your network address."


class TenantDirectory:
    """Looks up tenants at auth_service."""

    def __init__(self, auth_service: ServiceClient) -> None:
        self._auth_service = auth_service
        self._tenants: ResponseCache[str, Tenant | None] = ResponseCache(
            max_age=TENANT_MAX_AGE, limit=MAX_TENANTS, without_version=True
        )

    def last_known_allows(self, tenant_id: str, address: Address) -> bool:
        """Whether the last known settings of the tenant allow an address. Raises NoSuchTenant for an invalid id."""
        tenant = self._tenants.get_stale(tenant_id)
        if tenant is None and not is_tenant_id(tenant_id):
            raise NoSuchTenant
        return tenant is not None and tenant.allows(address)

    async def find(self, tenant_id: str, version: str | None, *, is_changing: bool = False) -> Tenant:
        """The tenant at a version. While it is `changing`, cached settings may be older than an answered change.

        Raises NoSuchTenant, or Unavailable if auth_service does not answer.
        """
        tenant = None if is_changing else self._tenants.get(tenant_id, version)
        if tenant is None:
            fetch = partial(self._fetch, tenant_id)
            tenant = await (fetch() if is_changing else self._tenants.get_or_fetch(tenant_id, version, fetch))
        if tenant is None:
            raise NoSuchTenant
        return tenant

    async def _fetch(self, tenant_id: str) -> Tenant | None:
        try:
            document = await self._auth_service.json(Caller.service(Tenant(tenant_id)), "find_tenant")
        except UpstreamProblem as problem:
            if problem.status == 404:
                return None
            raise
        return Tenant.from_document(document)


class ReleasePolicy(RingRules):
    """A tenant's policy for releases; `settings` is all of it, as `server_information` shows it."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        rules = settings["ring_rules"]
        super().__init__(settings["rings"], rules)
        self.settings = settings
        self.ring_settings = {"rings": self.rings, "ring_rules": rules}  # for client_registry
        # The rules for users of Entra ID: an app role or group id, and the ring.
        self.app_roles = tuple((rule["app_role"], rule["ring"]) for rule in rules if "app_role" in rule)


class PolicyDirectory:
    """Looks up policies at catalog_service, and caches them. Raises Unavailable if it does not answer."""

    def __init__(self, catalog_service: ServiceClient) -> None:
        self._catalog_service = catalog_service
        self._policies: ResponseCache[str, ReleasePolicy] = ResponseCache(max_age=MAX_AGE, limit=MAX_TENANTS)

    async def find(self, caller: Caller, version: str | None) -> ReleasePolicy:
        """The policy of the caller's tenant, at a version of the tenant."""
        if (policy := self._policies.get(caller.tenant_id, version)) is not None:
            return policy
        return await self._policies.get_or_fetch(caller.tenant_id, version, partial(self._fetch, caller))

    async def in_ring(self, client: Caller, version: str | None) -> Caller:
        """A client in its ring. Before, its `ring` is the chosen one."""
        policy = await self.find(client, version)
        ring = policy.ring_of(client.address, client.ring)
        return client if ring == client.ring else client.as_client(client.client_id, ring)

    async def _fetch(self, caller: Caller) -> ReleasePolicy:
        return ReleasePolicy(await self._catalog_service.json(Caller.service(caller.tenant), "find_release_policy"))


class UnknownClient(Exception):
    """The token belongs to no enabled client."""


class KnownClient(NamedTuple):
    """A client, the ring that an administrator chose for it, "" for none, and whether it may use a source address."""

    client_id: str
    ring: str
    source_address: bool


class ClientDirectory:
    """Looks up clients at client_registry. Raises Unavailable if it does not answer."""

    def __init__(self, client_registry: ServiceClient) -> None:
        self._client_registry = client_registry
        self._known: ResponseCache[tuple[str, bytes, str, int], KnownClient] = ResponseCache(
            max_age=MAX_AGE, limit=MAX_CLIENTS
        )
        # The digest of the token and the program in each form that identified a client, by the digest of the form.
        self._forms: FifoCache[bytes, tuple[bytes, int]] = FifoCache(MAX_CLIENTS)
        self._hidden: ResponseCache[tuple[str, str, str], str] = ResponseCache(max_age=MAX_AGE, limit=MAX_CLIENTS)
        self._usage: ResponseCache[str, Mapping[str, Any]] = ResponseCache(max_age=MAX_AGE, limit=MAX_TENANTS)
        self._releases: ResponseCache[tuple[str, str], bytes] = ResponseCache(
            max_age=RELEASE_MAX_AGE, limit=MAX_TENANTS
        )

    def known(self, visitor: Caller, form: bytes, version: str | None) -> Caller | None:
        """The visitor as the client whose form has these bytes, without parsing it; None if it must be identified."""
        sent = self._forms.get(sha256(form).digest())
        if sent is None:
            return None
        client = self._known.get((visitor.tenant_id, sent[0], visitor.ip, sent[1]), version)
        return None if client is None else visitor.as_client(client.client_id, client.ring)

    async def identify(
        self,
        visitor: Caller,
        token: str,
        program: int,
        version: str | None,
        *,
        form: bytes = b"",
        by_address: bool = False,
    ) -> Caller:
        """The visitor as the client with this token and program number. Raises UnknownClient, which is not cached.

        `form` are the bytes that held both; `known` then finds the client by them. `by_address`: the token was part of
        a personal source address, which the client may be forbidden to use.
        """
        digest = sha256(token.encode()).digest()
        key = (visitor.tenant_id, digest, visitor.ip, program)
        client = await self._known.get_or_fetch(key, version, partial(self._fetch_client, visitor, token, program))
        if form:
            self._forms.put(sha256(form).digest(), (digest, program))
        if by_address and not client.source_address:
            raise UnknownClient
        return visitor.as_client(client.client_id, client.ring)

    async def hidden_from(self, client: Caller, version: str | None) -> str:
        """The digest of the package ids that are hidden from a client, see `hidden_digest`."""
        key = (client.tenant_id, client.client_id, client.ip)
        hidden = self._hidden.get(key, version)
        if hidden is None:
            hidden = await self._hidden.get_or_fetch(key, version, partial(self._fetch_hidden, client))
        return hidden

    async def usage(self, caller: Caller, policy: ReleasePolicy, version: str | None) -> Mapping[str, Any]:
        """The number of the tenant's `clients`, and `clients_by_ring` of the policy at the same version."""
        return await self._usage.get_or_fetch(caller.tenant_id, version, partial(self._fetch_usage, caller, policy))

    async def latest_release(self, caller: Caller, version: str | None) -> bytes:
        """The JSON of `client_version`, one for each tenant and base URL. Raises UpstreamProblem or Unavailable."""
        key = (caller.tenant_id, caller.base_url)
        if (release := self._releases.get(key, version)) is not None:
            return release
        return await self._releases.get_or_fetch(key, version, partial(self._fetch_release, caller))

    async def _fetch_client(self, visitor: Caller, token: str, program: int) -> KnownClient:
        form = {"auth_token": token, "client": program}
        client = await self._client_registry.json(visitor, "identify_client", form)
        if not client["client_id"]:
            raise UnknownClient
        # A client_registry of the release before does not know source addresses.
        return KnownClient(client["client_id"], client["ring"], client.get("source_address", True))

    async def _fetch_hidden(self, client: Caller) -> str:
        return hidden_digest((await self._client_registry.json(client, "hidden_packages"))["package_ids"])

    async def _fetch_usage(self, caller: Caller, policy: ReleasePolicy) -> Mapping[str, Any]:
        usage: Mapping[str, Any] = await self._client_registry.json(caller, "client_usage", policy.ring_settings)
        return {"clients_by_ring": {}, **usage}  # A client_registry of the release before has no rings.

    async def _fetch_release(self, caller: Caller) -> bytes:
        async with self._client_registry.open(caller, "POST", ["client_version"]) as response:
            await raise_problem(response)
            return await response.read()


TENANTS = web.AppKey("tenants", TenantDirectory)
USER_DIRECTORY = web.AppKey("user_directory", UserDirectory)
CLIENT_DIRECTORY = web.AppKey("client_directory", ClientDirectory)
POLICIES = web.AppKey("policies", PolicyDirectory)
