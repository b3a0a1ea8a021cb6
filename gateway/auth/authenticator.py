"""From a request to its caller: tenant, network, then a session, API token, client token or token of Entra ID."""

from contextlib import suppress
from dataclasses import dataclass, field

from aiohttp import web

from common.auth.internal_tokens import Caller, Kind
from common.auth.sessions import SessionCheck, Sessions
from common.auth.signing import API_TOKEN_PREFIX
from common.caching import FifoCache
from common.errors import InvalidRequest, NotAuthenticated
from common.http.bodies import read_body
from common.http.forms import URLENCODED, Form, read_form, urlencoded_form
from common.http.middleware import CALLER, CLIENT_ADDRESS
from common.redis import RedisError
from common.tenants import Address, Tenant
from gateway.auth.directories import (
    ENTRA_TOKEN_LIMIT,
    ClientDirectory,
    NetworkNotAllowed,
    PolicyDirectory,
    TenantDirectory,
    UnknownClient,
    UserDirectory,
    is_entra_token,
)
from gateway.operations import CATALOG, CREDENTIALS_LIMIT, Access, Operation
from gateway.routing import Target, base_url
from gateway.settings import GatewaySettings
from gateway.winget import client_token

TOKEN_LIMIT = 4096  # characters
MAX_VISITORS = 10_000
WITH_BEARER = frozenset([Access.ADMINISTRATOR, Access.SESSION, Access.CLIENT, Access.PACKAGE_MANAGER])
SESSIONS = web.AppKey("sessions", Sessions)
# The tenant's version from before anything else was read. Caches use it; None: they may answer nothing.
TENANT_VERSION: web.RequestKey[str | None] = web.RequestKey("tenant_version")
ACCESS_VERSION: web.RequestKey[str | None] = web.RequestKey("access_version")  # the same of settings, users and tokens


@dataclass(frozen=True)
class Authenticator:
    """Identifies the callers of all requests."""

    _settings: GatewaySettings
    _sessions: Sessions
    _tenants: TenantDirectory
    _users: UserDirectory
    _clients: ClientDirectory
    _policies: PolicyDirectory
    _visitors: FifoCache[tuple[str, str | None, str, str | None], Caller] = field(
        default_factory=lambda: FifoCache(MAX_VISITORS)
    )

    async def authenticate(self, request: web.Request, target: Target) -> Caller:
        """The caller of a request, with one call of Redis. The request gets its `TENANT_VERSION` and `ACCESS_VERSION`.

        Raises:
            NoSuchTenant: the tenant does not exist.
            NetworkNotAllowed: the tenant does not allow the caller's network.
            NotAuthenticated: the operation needs a token, and the request has no valid one.
            InvalidRequest: the Host header or a client's form is not valid.
            Unavailable: a service did not answer.
            RedisError: Redis did not answer, and the request has a session token.
        """
        tenant_id, operation = target.tenant_id, target.operation
        address = request[CLIENT_ADDRESS]
        # To read a session renews its idle time, so other addresses wait for the network check; `identify` reads then.
        is_allowed = self._tenants.last_known_allows(tenant_id, address)
        token = _bearer_token(request) if is_allowed and operation.access in WITH_BEARER else ""
        is_entra = operation.access is Access.PACKAGE_MANAGER and is_entra_token(token)
        session_token = "" if is_entra or token.startswith(API_TOKEN_PREFIX) else token
        try:
            check = await self._sessions.touch(tenant_id, session_token)
        except RedisError:
            if session_token:
                raise
            check = SessionCheck(None)
        request[TENANT_VERSION], request[ACCESS_VERSION] = check.tenant_version, check.access_version
        tenant = await self._tenants.find(tenant_id, check.access_version, is_changing=check.is_changing)
        if not tenant.allows(address):
            raise NetworkNotAllowed
        visitor = request[CALLER] = self._visitor(request, tenant, address)  # for the log of a refusal
        if target.client_token:
            caller = await self._by_source_address(visitor, target.client_token, check)
        else:
            caller = await self.identify(request, operation, visitor, check)
        request[CALLER] = caller
        if caller.kind is Kind.CLIENT and operation.service == CATALOG:  # Only catalogs differ between rings.
            caller = request[CALLER] = await self._policies.in_ring(caller, check.tenant_version)
        return caller

    def _visitor(self, request: web.Request, tenant: Tenant, address: Address) -> Caller:
        """The caller before any token is read. Raises InvalidRequest for an invalid Host header."""
        settings = self._settings
        # Only these decide, unless a proxy names the address and the host. With `PUBLIC_URL` nobody checks the host.
        host = "" if settings.public_url else request.headers.get("Host")
        key = None if settings.trusted_proxies else (tenant.tenant_id, request.remote, request.scheme, host)
        if key and (visitor := self._visitors.get(key)) and visitor.tenant is tenant:
            return visitor
        url = base_url(request, settings, tenant.tenant_id)
        site_url = tenant.site_url(address)
        visitor = Caller(tenant, ip=str(address), base_url=url, deployment=settings.deployment, site_url=site_url)
        if key:
            self._visitors.put(key, visitor)
        return visitor

    async def identify(
        self, request: web.Request, operation: Operation, visitor: Caller, check: SessionCheck
    ) -> Caller:
        """The caller of an operation by the request's token, else the `visitor`.

        Raises NotAuthenticated if the operation needs a token and there is no valid one, InvalidRequest for a bad form.
        """
        match operation.access:
            case Access.ADMINISTRATOR:
                return await self._administrator(request, visitor, check)
            case Access.SESSION:
                return await self._user(visitor, check, _bearer_token(request))
            case Access.CLIENT:
                return await self._client(request, visitor, check)
            case Access.PACKAGE_MANAGER:
                return await self._package_manager(request, visitor, check, client_token(request))
            case _:
                return visitor

    async def _client(self, request: web.Request, visitor: Caller, check: SessionCheck) -> Caller:
        """The caller of an operation for clients. A client sends the same form each time, so it is parsed once."""
        if request.body_exists and request.headers.get("Content-Type") == URLENCODED:
            body = await read_body(request, CREDENTIALS_LIMIT)
            if "Authorization" not in request.headers:
                client = self._clients.known(visitor, body, check.tenant_version)
                if client is not None:
                    return client
            form = urlencoded_form(body)
        else:
            body, form = b"", await _other_form(request)
        program = form.integer("client", "Client", default=0)
        token = form.get("auth_token", "Auth-Token") or ""
        return await self._administrator_or_client(request, visitor, check, token, program, body)

    async def has_client_token(self, request: web.Request, visitor: Caller) -> bool:
        """Whether a request of winget shows the token of a client. Raises Unavailable."""
        return await self._by_client_token(visitor, client_token(request), 0, request[TENANT_VERSION]) is not None

    async def _by_source_address(self, visitor: Caller, token: str, check: SessionCheck) -> Caller:
        """The client of a personal source address. Raises NotAuthenticated, whatever the tenant asks of its clients."""
        client = None
        if visitor.tenant.source_address:
            client = await self._by_client_token(visitor, token, 0, check.tenant_version, by_address=True)
        if client is None:
            raise NotAuthenticated(
                "This source address is not valid. Remove the source, and add it with a new address."
            )
        return client

    async def _administrator(self, request: web.Request, visitor: Caller, check: SessionCheck) -> Caller:
        token = _bearer_token(request)
        if token.startswith(API_TOKEN_PREFIX):
            return await self._users.by_token(visitor, token, check.access_version)
        return await self._user(visitor, check, token)

    async def _user(self, visitor: Caller, check: SessionCheck, token: str) -> Caller:
        session = check.session
        if session is None:
            if not token:
                raise NotAuthenticated("Send one header `Authorization: Bearer <token>` with a token of /login.")
            session = await self._sessions.check(visitor.tenant_id, token)
        return await self._users.by_session(visitor, session, check.access_version)

    async def _package_manager(self, request: web.Request, visitor: Caller, check: SessionCheck, token: str) -> Caller:
        """A client by its token, else a user by a token of Entra ID, else as for other clients."""
        bearer = _bearer_token(request, ENTRA_TOKEN_LIMIT)
        if visitor.tenant.entra is None or not is_entra_token(bearer):
            return await self._administrator_or_client(request, visitor, check, token)
        client = await self._by_client_token(visitor, token, 0, check.tenant_version)
        if client is not None:
            return client
        policy = await self._policies.find(visitor, check.tenant_version)
        return await self._users.by_entra_token(visitor, bearer, policy.app_roles, check.tenant_version)

    async def _administrator_or_client(
        self,
        request: web.Request,
        visitor: Caller,
        check: SessionCheck,
        token: str,
        program: int = 0,
        form: bytes = b"",
    ) -> Caller:
        if "Authorization" in request.headers:
            try:
                return await self._administrator(request, visitor, check)
            except NotAuthenticated:
                if visitor.tenant.client_authentication and not token:
                    raise
        if client := await self._by_client_token(visitor, token, program, check.tenant_version, form=form):
            return client
        if visitor.tenant.client_authentication:
            raise NotAuthenticated("This tenant wants a valid session token or client token.")
        return visitor

    async def _by_client_token(
        self,
        visitor: Caller,
        token: str,
        program: int,
        version: str | None,
        *,
        form: bytes = b"",
        by_address: bool = False,
    ) -> Caller | None:
        if token and len(token) <= TOKEN_LIMIT and not token.startswith(API_TOKEN_PREFIX):
            with suppress(UnknownClient):
                return await self._clients.identify(visitor, token, program, version, form=form, by_address=by_address)
        return None


AUTHENTICATOR = web.AppKey("authenticator", Authenticator)


async def _other_form(request: web.Request) -> Form:
    """A client's form that is not url-encoded. The desktop client sends an empty JSON object as a form without fields.

    Raises InvalidRequest or BodyTooLarge.
    """
    if request.content_type == "application/json" and request.body_exists:
        if b"".join((await read_body(request, CREDENTIALS_LIMIT)).split()) not in {b"", b"{}"}:
            raise InvalidRequest("A body in JSON must be empty; send fields as a form.")
        return Form()
    return await read_form(request, limit=CREDENTIALS_LIMIT)


def _bearer_token(request: web.Request, limit: int = TOKEN_LIMIT) -> str:
    """The Bearer token of a request; "" unless exactly one Authorization header has it."""
    headers = request.headers.getall("Authorization", ())
    scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    return token.strip() if scheme.casefold() == "bearer" and len(token) <= limit else ""
