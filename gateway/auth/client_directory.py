"""From a client's token to its id, and what of the catalog is hidden from it; both remembered for some seconds."""

from hashlib import sha256

from common.auth.callers import Caller, hidden_word
from common.service_client.client import ServiceClient
from gateway.caching.response_cache import ResponseCache

REMEMBERED = 30.0  # seconds: a change that gateways could not be told of is in force within this time
REMEMBERED_AT_MOST = 20_000  # clients


class UnknownClient(Exception):
    """A token that is no client's, or that of one who is not enabled."""


class ClientDirectory:
    """Knows clients by asking client_registry. Raises Unavailable where it does not answer."""

    def __init__(self, client_registry: ServiceClient) -> None:
        self._client_registry = client_registry
        self._ids: ResponseCache[tuple[str, bytes, str, int], str] = ResponseCache(
            seconds=REMEMBERED, most=REMEMBERED_AT_MOST
        )
        self._hidden: ResponseCache[tuple[str, str, str], str] = ResponseCache(
            seconds=REMEMBERED, most=REMEMBERED_AT_MOST
        )

    async def identify(self, visitor: Caller, token: str, program: int, stamp: str | None) -> str:
        """The id of the client whose token this is. Raises UnknownClient, which is not remembered."""

        key = (visitor.tenant_id, sha256(token.encode()).digest(), visitor.ip, program)
        if known := self._ids.get(key, stamp):
            return known

        async def ask() -> str:
            told = {"auth_token": token, "client": program}
            answer = await self._client_registry.json(visitor, "identify_client", told)
            if not answer["client_id"]:
                raise UnknownClient
            return str(answer["client_id"])

        return await self._ids.get_or_fetch(key, stamp, ask)

    async def hidden_from(self, client: Caller, stamp: str | None) -> str:
        """What stands for the packages that a client does not see, see `hidden_word`."""
        key = (client.tenant_id, client.client_id, client.ip)
        known = self._hidden.get(key, stamp)
        if known is not None:
            return known

        async def ask() -> str:
            return hidden_word((await self._client_registry.json(client, "hidden_packages"))["package_ids"])

        return await self._hidden.get_or_fetch(key, stamp, ask)
