"""The clients of a tenant (section 4.6) and who of them calls (section 5.2)."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from uuid import uuid4

from client_registry.clients.capacity import allocate_slot
from client_registry.clients.hostnames import Resolver
from client_registry.clients.tokens import ClientTokens, IssuedToken
from client_registry.model import Client, ClientLimitExceeded, ClientNotFound, Clock, utc_now, uuid_text
from common.auth.callers import Caller, Deployment

SIGHTING_INTERVAL = timedelta(minutes=1)


class SeatTaken(Exception):
    """Another client was added on this seat at the same moment."""


@dataclass(frozen=True)
class Wanted:
    """Which clients: `text` stands in their name, address or the end of their token; no `client_ids` are all."""

    text: str = ""
    client_ids: tuple[str, ...] = ()
    offset: int = 0
    limit: int = 50


class ClientStore(Protocol):
    """Where clients are kept; the store decides that names, tokens and seats are unique within the tenant."""

    async def list(self, tenant_id: str) -> Sequence[Client]: ...

    async def find(self, tenant_id: str, wanted: Wanted) -> tuple[Sequence[Client], int]:
        """Those on the wanted page, the one of that very name first, and how many there are on all pages."""

    async def count(self, tenant_id: str) -> int: ...

    async def seats(self, tenant_id: str) -> AbstractSet[int]: ...

    async def add(self, tenant_id: str, client: Client, *, digest: str, seat: int) -> None:
        """Raises ClientExists for a name there is, SeatTaken for a seat that is taken."""

    async def find_by_digests(self, tenant_id: str, digests: Sequence[str]) -> Client | None:
        """The client whose token has one of these digests."""

    async def note_sighting(
        self, tenant_id: str, client_id: str, *, digests: Sequence[str], ip: str, program: int, at: datetime
    ) -> None:
        """Note it, and keep the first of the digests, while the client's token has one of them."""

    async def set_enabled(self, tenant_id: str, client_id: str, enabled: bool) -> bool: ...

    async def set_token(self, tenant_id: str, client_id: str, *, digest: str, hint: str) -> bool: ...

    async def delete(self, tenant_id: str, client_id: str, *, digests: Sequence[str]) -> bool:
        """Delete a client and the blacklist entries about it, both or neither; whether there was one."""


class Clients:
    """Registers clients, changes and removes them, and recognises them by their tokens."""

    def __init__(self, store: ClientStore, tokens: ClientTokens, resolver: Resolver, now: Clock = utc_now) -> None:
        self._store = store
        self._tokens = tokens
        self._resolver = resolver
        self._now = now

    async def list(self, tenant_id: str) -> Sequence[Client]:
        """A tenant's clients, by name."""
        return await self._store.list(tenant_id)

    async def find(self, tenant_id: str, wanted: Wanted) -> tuple[Sequence[Client], int]:
        """The clients of the wanted page, the one of that very name first, and how many there are on all pages."""
        return await self._store.find(tenant_id, wanted)

    async def count(self, tenant_id: str) -> int:
        return await self._store.count(tenant_id)

    async def add(self, caller: Caller, name: str) -> tuple[Client, IssuedToken]:
        """Register a host and issue its token.

        Raises:
            NameNotResolved: in the single-tenant deployment, the name leads to no address.
            ClientLimitExceeded: the tenant has as many clients as it may.
            ClientExists: there is a client of that name, letter case aside.
        """
        ip = await self._resolver.resolve(name) if caller.deployment is Deployment.SINGLE else None
        token = self._tokens.issue()
        client = Client(str(uuid4()), name, self._now(), token.hint, ip=ip)
        limit = caller.tenant.max_clients
        while True:
            seat = allocate_slot(await self._store.seats(caller.tenant_id), limit)
            if seat is None:
                raise ClientLimitExceeded(limit or 0)
            try:
                await self._store.add(caller.tenant_id, client, digest=token.digest, seat=seat)
            except SeatTaken:
                continue
            return client, token

    async def edit(self, tenant_id: str, client_id: str, *, enabled: bool) -> None:
        """A client that is not enabled is as unknown as one that is not there. Raises ClientNotFound."""
        known = uuid_text(client_id)
        if known is None or not await self._store.set_enabled(tenant_id, known, enabled):
            raise ClientNotFound

    async def rotate_token(self, tenant_id: str, client_id: str) -> IssuedToken:
        """A new token; the old one ends at once. Raises ClientNotFound."""
        known, token = uuid_text(client_id), self._tokens.issue()
        if known is None or not await self._store.set_token(tenant_id, known, digest=token.digest, hint=token.hint):
            raise ClientNotFound
        return token

    async def delete(self, tenant_id: str, client_id: str, token: str) -> None:
        """Remove a client and the blacklist entries about it. Raises ClientNotFound, also for a wrong token."""
        known, digests = uuid_text(client_id), self._tokens.digests(token)
        if known is None or not await self._store.delete(tenant_id, known, digests=digests):
            raise ClientNotFound

    async def identify(self, caller: Caller, token: str, program: int) -> str | None:
        """The id of the client that a token names, None for an unknown token or a client that is not enabled.

        The sighting is noted: at once when the address or the program is another, else once a minute. A token that is
        kept under a key of before is kept under the present one from then on.
        """
        digests = self._tokens.digests(token)
        client = await self._store.find_by_digests(caller.tenant_id, digests) if digests else None
        if client is None or not client.enabled:
            return None
        now = self._now()
        moved = (client.ip, client.program) != (caller.ip, program)
        if moved or client.last_seen is None or now - client.last_seen >= SIGHTING_INTERVAL:
            await self._store.note_sighting(
                caller.tenant_id, client.client_id, digests=digests, ip=caller.ip, program=program, at=now
            )
        return client.client_id
