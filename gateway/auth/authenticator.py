"""From a request to its caller: a session token, else a client token (section 5)."""

from contextlib import suppress

from aiohttp import web

from common.auth.callers import Caller
from common.auth.sessions import SessionCheck, Sessions
from common.errors import NotAuthenticated
from common.http.forms import read_form
from common.redis import RedisError
from gateway.auth.client_directory import ClientDirectory, UnknownClient
from gateway.operations import CREDENTIALS_LIMIT, Access, Operation
from gateway.winget import client_token

TOKEN_LIMIT = 4096  # characters
WITH_SESSION = frozenset([Access.ADMINISTRATOR, Access.CLIENT, Access.PACKAGE_MANAGER])


class Authenticator:
    """Tells who calls."""

    def __init__(self, sessions: Sessions, clients: ClientDirectory) -> None:
        self._sessions = sessions
        self._clients = clients

    async def look(self, request: web.Request, operation: Operation, tenant_id: str, *, welcome: bool) -> SessionCheck:
        """What Redis says of the tenant, and of the session that is shown for the operation.

        A session is used by being looked at. So it is looked at only where its holder is `welcome`; else `identify`
        does so once that is known.

        Raises RedisError where Redis does not answer, and a session is shown.
        """
        shown = _shown(request) if welcome and operation.access in WITH_SESSION else ""
        try:
            return await self._sessions.touch(tenant_id, shown)
        except RedisError:
            if shown:
                raise
            return SessionCheck(None)

    async def identify(self, request: web.Request, operation: Operation, visitor: Caller, look: SessionCheck) -> Caller:
        """The caller of an operation, `visitor` being what is known without a token.

        Raises:
            NotAuthenticated: the operation wants a token, and there is no valid one.
            InvalidRequest: a client's form cannot be understood.
        """
        match operation.access:
            case Access.ADMINISTRATOR:
                return await self._administrator(request, visitor, look)
            case Access.CLIENT:
                form = await read_form(request, limit=CREDENTIALS_LIMIT)
                number = form.integer("client", "Client", default=0)
                token = form.get("auth_token", "Auth-Token") or ""
                return await self._administrator_or_client(request, visitor, look, token, number)
            case Access.PACKAGE_MANAGER:
                return await self._administrator_or_client(request, visitor, look, client_token(request))
            case _:
                return visitor

    async def _administrator(self, request: web.Request, visitor: Caller, look: SessionCheck) -> Caller:
        session = look.session or await self._sessions.check(visitor.tenant_id, _bearer(request))
        return visitor.as_administrator(session.username, session.session_id)

    async def _administrator_or_client(
        self, request: web.Request, visitor: Caller, look: SessionCheck, token: str, number: int = 0
    ) -> Caller:
        """The caller by their session, else by a client's token, whose program has this `number`."""
        if "Authorization" in request.headers:
            try:
                return await self._administrator(request, visitor, look)
            except NotAuthenticated:
                if visitor.tenant.client_authentication and not token:
                    raise
        if token and len(token) <= TOKEN_LIMIT:
            with suppress(UnknownClient):
                return visitor.as_client(await self._clients.identify(visitor, token, number, look.stamp))
        if visitor.tenant.client_authentication:
            raise NotAuthenticated("This tenant wants a valid session token or client token.")
        return visitor


def _bearer(request: web.Request) -> str:
    if not (token := _shown(request)):
        raise NotAuthenticated("Send one header `Authorization: Bearer <token>` with a token of /login.")
    return token


def _shown(request: web.Request) -> str:
    """The session token of a request; "" where there is none, or not in the one header that it belongs in."""
    headers = request.headers.getall("Authorization", ())
    scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    return token.strip() if scheme.casefold() == "bearer" and len(token) <= TOKEN_LIMIT else ""
