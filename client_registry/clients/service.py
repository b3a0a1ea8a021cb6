"""The clients of a tenant: their host names, their tokens, and how a token identifies one of them."""

import asyncio
import re
import secrets
import socket
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any
from uuid import uuid4

from client_registry.clients.store import (
    Client,
    ClientLimitExceeded,
    ClientNotFound,
    ClientQuery,
    ClientUnknown,
    MongoClientStore,
    NameNotResolved,
    Placement,
    SlotTaken,
    uuid_text,
)
from common.auth.internal_tokens import Caller, Deployment
from common.auth.signing import Keys
from common.errors import InvalidField
from common.tenants import RingRules, unknown_ring

HINT_LENGTH = 4


@dataclass(frozen=True)
class IssuedToken:
    """A new token: `text` is for its client alone, `digest`, `key_id` and `hint` are stored."""

    text: str
    digest: str
    key_id: str

    @property
    def hint(self) -> str:
        return self.text[-HINT_LENGTH:]

    @property
    def stored(self) -> dict[str, object]:
        """The fields of the client's document."""
        return {"token_digest": self.digest, "token_key": self.key_id, "token_hint": self.hint}


class ClientTokens:
    """Issues tokens and computes their digests."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def issue(self) -> IssuedToken:
        text, key_id = str(uuid4()), self.key_id
        return IssuedToken(text, self._keys.digests(text)[0], key_id)

    @property
    def key_id(self) -> str:
        """The id of the current key. Read it before a digest: if the key changes in between, the old one is named."""
        return self._keys.signing_id

    def digests(self, token: str) -> tuple[str, ...]:
        """The digests under which the token may be stored, the current one first; none for an impossible token."""
        text = uuid_text(token)
        return self._keys.digests(text) if text else ()


NAME_LIMIT = 253
TIMEOUT = 2.0  # seconds
AT_ONCE = 4

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")

Lookup = Callable[..., list[tuple[Any, ...]]]


def is_host_name(text: str) -> bool:
    return len(text) <= NAME_LIMIT and _HOST_NAME.fullmatch(text) is not None


def host_name(field: str, text: str) -> str:
    """A host name by RFC 1123, or a Windows name with underscores. Raises InvalidField."""
    if not is_host_name(text):
        message = f"must be a host name: letters, digits, - and _ in parts of 1 to 63, at most {NAME_LIMIT} in all"
        raise InvalidField(field, message, reason="not_a_host_name", most=NAME_LIMIT)
    return text


class SystemResolver:
    """Resolves names with the system's resolver, in threads of its own: a slow name server delays no other work.

    At most `AT_ONCE` lookups run at once. Each may take `timeout` seconds, including the wait for a thread. Nothing
    connects to the address.
    """

    def __init__(self, lookup: Lookup = socket.getaddrinfo, *, timeout: float = TIMEOUT) -> None:
        self._lookup = lookup
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="resolver")

    async def resolve(self, name: str) -> str:
        """One IP address of a host. Raises NameNotResolved."""
        try:
            async with asyncio.timeout(self._timeout):
                results = await asyncio.get_running_loop().run_in_executor(
                    self._threads, lambda: self._lookup(name, None, type=socket.SOCK_STREAM)
                )
        except (OSError, UnicodeError):  # TimeoutError and gaierror are OSErrors.
            raise NameNotResolved(name) from None
        if not results:
            raise NameNotResolved(name)
        address: str = results[0][4][0]
        return address.partition("%")[0]  # without the zone of a link-local address

    def close(self) -> None:
        """Start no more lookups; running ones end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)


SIGHTING_INTERVAL = timedelta(minutes=1)
SPARE = 64  # free slots to choose from, so that concurrent callers seldom choose the same
SEEN_WITHIN = {"day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=30)}


class Clients:
    """Registers, changes, removes and identifies clients."""

    def __init__(
        self,
        store: MongoClientStore,
        tokens: ClientTokens,
        resolver: SystemResolver,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._tokens = tokens
        self._resolver = resolver
        self._now = now

    async def list(self, tenant_id: str) -> Sequence[Client]:
        """A tenant's clients, by name."""
        return await self._store.list(tenant_id)

    async def find(self, tenant_id: str, query: ClientQuery) -> tuple[Sequence[Client], int]:
        """The clients of one page, an exact name first, and the number of matching clients."""
        return await self._store.find(tenant_id, query)

    async def count_seen(self, tenant_id: str) -> Mapping[str, int]:
        """The number of clients that called in the last `day`, `week` and `month`."""
        now = self._now()
        return await self._store.count_seen(tenant_id, {name: now - age for name, age in SEEN_WITHIN.items()})

    async def find_in_ring(
        self, tenant_id: str, query: ClientQuery, ring: str, rules: RingRules
    ) -> tuple[Sequence[Client], int]:
        """The same of the clients in a ring. Raises InvalidField for a ring that the tenant does not have."""
        if ring not in rules.rings:
            raise unknown_ring("ring", rules.rings)
        placements = await self._placements(tenant_id, rules)
        among = [placement for placement, its in placements if its == ring]
        return await self._store.find(tenant_id, replace(query, among=among))

    async def count_by_ring(self, tenant_id: str, rules: RingRules) -> Mapping[str, int]:
        """The number of clients in each ring; in "" without rings."""
        numbers = dict.fromkeys(rules.rings or ("",), 0)
        for placement, ring in await self._placements(tenant_id, rules):
            numbers[ring] += placement.clients
        return numbers

    async def _placements(self, tenant_id: str, rules: RingRules) -> Sequence[tuple[Placement, str]]:
        """Groups of clients, and the ring of each; "" without rings."""
        last = rules.rings[-1] if rules.rings else ""
        placements = await self._store.placements(tenant_id, by_address=rules.has_networks)
        return [(each, rules.ring_of(each.address, each.ring) or last) for each in placements]

    async def id_of(self, tenant_id: str, name: str) -> str:
        """The id of the client with a name, letter case aside. Raises ClientUnknown."""
        clients = {client.name.casefold(): client for client in await self._store.list(tenant_id)}
        if client := clients.get(name.casefold()):
            return client.client_id
        similar = get_close_matches(name.casefold(), clients, n=1)
        raise ClientUnknown(name, clients[similar[0]].name if similar else "")

    async def add(self, caller: Caller, name: str, *, enrolled_by: str = "") -> tuple[Client, IssuedToken]:
        """Register a host and issue its token. `enrolled_by` is the id of the API token with which the host calls.

        Raises:
            NameNotResolved: in the single-tenant deployment, the name has no address.
            ClientLimitExceeded: the tenant has as many clients as it may.
            ClientExists: there is a client of that name, letter case aside.
        """
        ip = caller.ip if enrolled_by else None
        if not enrolled_by and caller.deployment is Deployment.SINGLE:
            ip = await self._resolver.resolve(name)
        token = self._tokens.issue()
        client = Client(str(uuid4()), name, self._now(), token.hint, ip=ip, enrolled_by=enrolled_by)
        limit = caller.tenant.max_clients
        while True:
            slots = allocate_slots(await self._store.slots(caller.tenant_id), limit)
            if slots is None:
                raise ClientLimitExceeded(limit=limit or 0)
            try:
                await self._store.add(caller.tenant_id, client, digest=token.digest, key_id=token.key_id, slot=slots[0])
            except SlotTaken:
                continue
            return client, token

    async def edit(self, tenant_id: str, client_id: str, changes: Mapping[str, object]) -> Client:
        """Change fields of a client; a disabled one cannot be identified. Raises ClientNotFound."""
        client = await self._store.change(tenant_id, uuid_text(client_id) or "", changes)
        if client is None:
            raise ClientNotFound
        return client

    async def rotate_token(self, tenant_id: str, client_id: str) -> tuple[Client, IssuedToken]:
        """Issue a new token; the old one ends at once. Raises ClientNotFound."""
        token = self._tokens.issue()
        return await self.edit(tenant_id, client_id, token.stored), token

    async def delete(self, tenant_id: str, client_id: str, token: str) -> None:
        """Delete a client and its blacklist entries. Raises ClientNotFound, also for a wrong token."""
        if not await self._store.delete(tenant_id, uuid_text(client_id) or "", digests=self._tokens.digests(token)):
            raise ClientNotFound

    async def identify(self, caller: Caller, token: str, program: int) -> Client | None:
        """The client that a token names; None for an unknown token or a disabled client.

        The sighting is stored if the address or the program changed, else once a minute. It also moves a token that is
        stored under an old key to the current key, at the first call.
        """
        key_id, digests = self._tokens.key_id, self._tokens.digests(token)
        client, stored_key_id = await self._store.find_by_digests(caller.tenant_id, digests) if digests else (None, "")
        if client is None or not client.enabled:
            return None
        now = self._now()
        has_moved = (client.ip, client.program, stored_key_id) != (caller.ip, program, key_id)
        if has_moved or client.last_seen is None or now - client.last_seen >= SIGHTING_INTERVAL:
            await self._store.record_sighting(
                *(caller.tenant_id, client.client_id),
                digests=digests,
                key_id=key_id,
                ip=caller.ip,
                program=program,
                at=now,
            )
        return client


def allocate_slots(taken: AbstractSet[int], limit: int | None, number: int = 1) -> Sequence[int] | None:
    """Random free slots; None if the tenant would have more than `limit` clients.

    Each client has a numbered slot of its tenant, and a unique index gives each slot to one client only. The usable
    slots are limited, so races cannot exceed the limit and crashes cannot make a counter wrong.
    """
    enough = len(taken) + number - 1 + SPARE
    usable = enough if limit is None else min(enough, usable_slots(taken, limit))
    free = [slot for slot in range(usable) if slot not in taken]
    return secrets.SystemRandom().sample(free, number) if len(free) >= number else None


def usable_slots(taken: AbstractSet[int], limit: int) -> int:
    """How many slots, from 0 on, can all be taken without exceeding `limit` clients.

    Fewer than `limit` if clients have higher slots, from a time with a higher limit or none.
    """
    return bisect_right(range(limit + 1), limit, key=lambda end: end + sum(slot >= end for slot in taken)) - 1
