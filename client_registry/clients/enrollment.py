"""Machines that register themselves with an API token that a whole fleet shares."""

from client_registry.clients.service import Clients, ClientTokens, IssuedToken
from client_registry.clients.store import Client, ClientExists, ClientLimitExceeded, MongoClientStore
from common.auth.internal_tokens import Caller
from common.auth.roles import Permission, PermissionMissing
from common.errors import TooManyRequests
from common.redis import WindowCounts

HOUR = 3600  # seconds


class TooManyEnrollments(TooManyRequests):
    code = "too_many_enrollments"
    text = "This API token has enrolled {limit} machines within an hour; try again in {seconds} seconds."


class ClientNotEnrolled(ClientExists):
    """Another caller registered the client, or it is disabled."""

    text = "There is a client {name!r} that this token did not enroll, or that is disabled. Delete or enable it first."


class Enrollment:
    """Registers the calling machines of API tokens, each at most `per_hour` times an hour."""

    def __init__(
        self, store: MongoClientStore, tokens: ClientTokens, clients: Clients, counts: WindowCounts, per_hour: int
    ) -> None:
        self._store = store
        self._tokens = tokens
        self._clients = clients
        self._counts = counts
        self._per_hour = per_hour

    async def enroll(self, caller: Caller, name: str) -> tuple[Client, IssuedToken, bool]:
        """Register the calling machine, or replace its token if the same API token registered it before.

        Returns also whether the client is new. Refused attempts count, too: nobody can probe for names.

        Raises:
            PermissionMissing: the caller is no API token.
            TooManyEnrollments: the API token has reached its limit for this hour.
            ClientLimitExceeded: the tenant has as many clients as it may.
            ClientNotEnrolled: another caller registered the client, or it is disabled.
            RedisError: Redis did not answer.
        """
        if not caller.token_id:
            raise PermissionMissing(permission=Permission.CLIENTS_ENROLL)
        count_name = f"{caller.tenant_id}:{caller.token_id}"
        if await self._counts.count(count_name, HOUR) > self._per_hour:
            seconds = await self._counts.wait({count_name: self._per_hour})
            raise TooManyEnrollments(limit=self._per_hour, seconds=seconds, retry_after=seconds)
        if again := await self._replace_token(caller, name):
            return *again, False
        try:
            return *await self._clients.add(caller, name, enrolled_by=caller.token_id), True
        except (ClientExists, ClientLimitExceeded):
            if again := await self._replace_token(caller, name):  # The machine calls twice at the same moment.
                return *again, False
            if name.casefold() not in await self._store.slots_by_name(caller.tenant_id):
                raise
            raise ClientNotEnrolled(name=name) from None

    async def _replace_token(self, caller: Caller, name: str) -> tuple[Client, IssuedToken] | None:
        token = self._tokens.issue()
        values = {**token.stored, "ip": caller.ip}
        client = await self._store.change_enrolled(caller.tenant_id, name, caller.token_id, values)
        return (client, token) if client else None
