"""Looks up the roles of users; caches them for some seconds."""

from functools import partial

from common.auth.internal_tokens import Caller
from common.auth.roles import Role
from common.auth.sessions import Session
from common.caching.response_cache import ResponseCache
from common.errors import NotAuthenticated
from common.service_client.client import ServiceClient

MAX_AGE = 30.0  # seconds: the longest delay of a change whose new version did not reach Redis
MAX_USERS = 20_000


class UserDirectory:
    """Looks up users at auth_service. Raises Unavailable if it does not answer."""

    def __init__(self, auth_service: ServiceClient) -> None:
        self._auth_service = auth_service
        self._roles: ResponseCache[tuple[str, str], tuple[Role, ...]] = ResponseCache(max_age=MAX_AGE, limit=MAX_USERS)

    async def identify(self, visitor: Caller, session: Session, version: str | None) -> Caller:
        """The visitor as the user of a session, with the user's roles at a version of the tenant.

        Raises NotAuthenticated if the user was deleted.
        """
        key = visitor.tenant_id, session.username
        if (roles := self._roles.get(key, version)) is None:
            roles = await self._roles.get_or_fetch(key, version, partial(self._fetch, visitor, session))
        if not roles:
            raise NotAuthenticated("The user of this session was deleted.")
        return visitor.as_administrator(session.username, session.session_id, roles)

    async def _fetch(self, visitor: Caller, session: Session) -> tuple[Role, ...]:
        user = visitor.as_administrator(session.username, session.session_id, ())
        return tuple(map(Role, (await self._auth_service.json(user, "find_roles"))["roles"]))
