"""Looks up clients, their number, the packages hidden from them, and the latest client program, and caches all."""

from functools import partial
from hashlib import sha256
from typing import NamedTuple

from common.auth.internal_tokens import Caller, hidden_digest
from common.caching import FifoCache, ResponseCache
from common.service_client.client import ServiceClient, raise_problem

MAX_AGE = 30.0  # seconds: the longest delay of a change whose new version did not reach Redis
MAX_CLIENTS = 20_000
MAX_TENANTS = 10_000
RELEASE_MAX_AGE = 1.0  # seconds; the response may have a signed address, which expires
MAX_RELEASES = 10_000  # one for each tenant and base URL


class UnknownClient(Exception):
    """The token belongs to no enabled client."""


class KnownClient(NamedTuple):
    """A client, and the ring that an administrator chose for it; "" for none."""

    client_id: str
    ring: str


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
        self._counts: ResponseCache[str, int] = ResponseCache(max_age=MAX_AGE, limit=MAX_TENANTS)
        self._releases: ResponseCache[tuple[str, str], bytes] = ResponseCache(
            max_age=RELEASE_MAX_AGE, limit=MAX_RELEASES
        )

    def known(self, visitor: Caller, form: bytes, version: str | None) -> Caller | None:
        """The visitor as the client whose form has these bytes, without parsing it; None if it must be identified."""
        sent = self._forms.get(sha256(form).digest())
        if sent is None:
            return None
        client = self._known.get((visitor.tenant_id, sent[0], visitor.ip, sent[1]), version)
        return None if client is None else visitor.as_client(*client)

    async def identify(
        self, visitor: Caller, token: str, program: int, version: str | None, *, form: bytes = b""
    ) -> Caller:
        """The visitor as the client with this token and program number. Raises UnknownClient, which is not cached.

        `form` are the bytes that held both; `known` then finds the client by them.
        """
        digest = sha256(token.encode()).digest()
        key = (visitor.tenant_id, digest, visitor.ip, program)
        client = await self._known.get_or_fetch(key, version, partial(self._fetch_client, visitor, token, program))
        if form:
            self._forms.put(sha256(form).digest(), (digest, program))
        return visitor.as_client(*client)

    async def hidden_from(self, client: Caller, version: str | None) -> str:
        """The digest of the package ids that are hidden from a client, see `hidden_digest`."""
        key = (client.tenant_id, client.client_id, client.ip)
        hidden = self._hidden.get(key, version)
        if hidden is None:
            hidden = await self._hidden.get_or_fetch(key, version, partial(self._fetch_hidden, client))
        return hidden

    async def count(self, caller: Caller, version: str | None) -> int:
        """The number of the tenant's clients."""
        return await self._counts.get_or_fetch(caller.tenant_id, version, partial(self._fetch_count, caller))

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
        return KnownClient(client["client_id"], client["ring"])

    async def _fetch_hidden(self, client: Caller) -> str:
        return hidden_digest((await self._client_registry.json(client, "hidden_packages"))["package_ids"])

    async def _fetch_count(self, caller: Caller) -> int:
        return int((await self._client_registry.json(caller, "client_usage"))["clients"])

    async def _fetch_release(self, caller: Caller) -> bytes:
        async with self._client_registry.open(caller, "POST", ["client_version"]) as response:
            await raise_problem(response)
            return await response.read()
