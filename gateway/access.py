"""From a request to its caller: a session token, else a client token (section 5)."""

from aiohttp import web

from common.caller import Caller
from common.client import ServiceClient
from common.errors import NotAuthenticated
from common.forms import read_form
from common.sessions import Sessions
from gateway.operations import CREDENTIALS_LIMIT, Access, Operation

TOKEN_LIMIT = 4096  # characters


class Gatekeeper:
    """Tells who calls."""

    def __init__(self, sessions: Sessions, client_registry: ServiceClient) -> None:
        self._sessions = sessions
        self._client_registry = client_registry

    async def identify(self, request: web.Request, operation: Operation, visitor: Caller) -> Caller:
        """The caller of an operation, `visitor` being what is known without a token.

        Raises:
            NotAuthenticated: the operation wants a token, and there is no valid one.
            InvalidRequest: a client's form cannot be understood.
        """
        match operation.access:
            case Access.ADMINISTRATOR:
                return await self._administrator(request, visitor)
            case Access.CLIENT:
                return await self._administrator_or_client(request, visitor)
            case _:
                return visitor

    async def _administrator(self, request: web.Request, visitor: Caller) -> Caller:
        session = await self._sessions.check(visitor.tenant_id, _bearer(request))
        return visitor.as_administrator(session.username, session.session_id)

    async def _administrator_or_client(self, request: web.Request, visitor: Caller) -> Caller:
        form = await read_form(request, limit=CREDENTIALS_LIMIT)
        number = form.integer("client", "Client", default=0)
        token = form.get("auth_token", "Auth-Token")
        if "Authorization" in request.headers:
            try:
                return await self._administrator(request, visitor)
            except NotAuthenticated:
                if visitor.tenant.client_authentication and not token:
                    raise
        if token and len(token) <= TOKEN_LIMIT:
            answer = await self._client_registry.ask(
                visitor, "identify_client", {"auth_token": token, "client": number}
            )
            if answer["client_id"]:
                return visitor.as_client(answer["client_id"])
        if visitor.tenant.client_authentication:
            raise NotAuthenticated("This tenant wants a valid session token or client token.")
        return visitor


def _bearer(request: web.Request) -> str:
    headers = request.headers.getall("Authorization", [])
    scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    if scheme.casefold() != "bearer" or not token or len(token) > TOKEN_LIMIT:
        raise NotAuthenticated("Send one header `Authorization: Bearer <token>` with a token of /login.")
    return token.strip()
