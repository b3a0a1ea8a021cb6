"""Clients: sightings, name resolution in the single-tenant deployment, the slots of the client limit, and tokens."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest

from client_registry.clients.service import Clients, ClientTokens, SystemResolver, allocate_slots, usable_slots
from client_registry.clients.store import (
    Client,
    MongoClientStore,
    NameNotResolved,
)
from common.auth.internal_tokens import Caller, Deployment
from common.auth.signing import Keys
from tests.support.factories import KEY, KEYS, make_caller
from tests.support.tables import each

START = datetime(2026, 1, 1, tzinfo=UTC)
NOWHERE = "nowhere.invalid"


@dataclass
class OneClient(MongoClientStore):
    """A store with room for one client, which counts the recorded sightings."""

    client: Client | None = None
    digest: str = ""
    key_id: str = ""
    sightings: int = 0

    async def list(self, tenant_id: str) -> Sequence[Client]:
        return [self.client] if self.client else []

    async def slots(self, tenant_id: str) -> AbstractSet[int]:
        return set()

    async def add(self, tenant_id: str, client: Client, *, digest: str, key_id: str, slot: int) -> None:
        self.client, self.digest, self.key_id = client, digest, key_id

    async def find_by_digests(self, tenant_id: str, digests: Sequence[str]) -> tuple[Client | None, str]:
        return (self.client, self.key_id) if self.digest in digests else (None, "")

    async def record_sighting(
        self,
        tenant_id: str,
        client_id: str,
        *,
        digests: Sequence[str],
        key_id: str,
        ip: str,
        program: int,
        at: datetime,
    ) -> None:
        assert self.client
        self.digest, self.key_id = digests[0], key_id
        self.client = replace(self.client, ip=ip, program=program, last_seen=at)
        self.sightings += 1

    async def change(self, tenant_id: str, client_id: str, changes: Mapping[str, Any]) -> Client:
        assert self.client
        self.client = replace(self.client, **changes)
        return self.client


class FakeResolver(SystemResolver):
    """Resolves every name except one."""

    def __init__(self) -> None: ...

    async def resolve(self, name: str) -> str:
        if name == NOWHERE:
            raise NameNotResolved(name)
        return "192.0.2.9"


@dataclass
class RegisteredClient:
    """One registered client and a clock."""

    clients: Clients
    store: OneClient
    caller: Caller
    token: str
    clock: "Clock"

    async def call(self, *, after: int, ip: str = "192.0.2.1", program: int = 1) -> None:
        """Identify the client after `after` seconds."""
        self.clock.now += timedelta(seconds=after)
        assert await self.clients.identify(replace(self.caller, ip=ip), self.token, program)


@dataclass
class Clock:
    now: datetime = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
async def registered() -> RegisteredClient:
    store, clock, caller = OneClient(), Clock(), make_caller()
    clients = Clients(store, ClientTokens(KEYS), FakeResolver(), clock)
    _, token = await clients.add(caller, "pc")
    return RegisteredClient(clients, store, caller, token.text, clock)


async def test_sightings_are_written_once_a_minute(registered: RegisteredClient) -> None:
    for number in range(13):
        await registered.call(after=10)
        if not number:
            client = registered.store.client
            assert client
            assert (client.ip, client.program, client.last_seen) == ("192.0.2.1", 1, START + timedelta(seconds=10))
    assert registered.store.sightings == 3  # at 10, 70 and 130 seconds


@pytest.mark.parametrize("change", [{"ip": "192.0.2.2"}, {"program": 0}], ids=str)
async def test_a_sighting_from_elsewhere_is_written_at_once(registered: RegisteredClient, change: Any) -> None:
    await registered.call(after=0)
    await registered.call(after=1, **change)

    assert registered.store.sightings == 2


async def test_a_token_of_the_previous_key_is_moved_to_the_current_key(registered: RegisteredClient) -> None:
    present = "the-key-that-takes-the-place-of-the-first"
    rotating = Clients(registered.store, ClientTokens(Keys(f"{present} {KEY}")), FakeResolver(), registered.clock)
    finished = Clients(registered.store, ClientTokens(Keys(present)), FakeResolver(), registered.clock)

    await registered.call(after=0)
    assert await finished.identify(registered.caller, registered.token, 1) is None
    assert await rotating.identify(registered.caller, registered.token, 1)
    assert await finished.identify(registered.caller, registered.token, 1)
    assert await registered.clients.identify(registered.caller, registered.token, 1) is None


async def test_a_sighting_of_a_disabled_client_is_not_written(registered: RegisteredClient) -> None:
    client_id, disabled = "6c9f2a17-0f3c-4b8a-9d55-7e1b2c3d4e5f", {"enabled": False}
    await registered.clients.edit(registered.caller.tenant_id, client_id, disabled)

    assert await registered.clients.identify(registered.caller, registered.token, 1) is None
    assert registered.store.sightings == 0


@pytest.mark.parametrize(("deployment", "ip"), [(Deployment.SINGLE, "192.0.2.9"), (Deployment.MULTI, None)])
async def test_only_the_single_tenant_deployment_stores_the_resolved_address(
    deployment: Deployment, ip: str | None
) -> None:
    caller = make_caller(deployment=deployment)
    client, _ = await Clients(OneClient(), ClientTokens(KEYS), FakeResolver()).add(caller, "pc")

    assert client.ip == ip


async def test_the_single_tenant_deployment_refuses_a_name_without_an_address() -> None:
    store = OneClient()

    with pytest.raises(NameNotResolved):
        await Clients(store, ClientTokens(KEYS), FakeResolver()).add(make_caller(deployment=Deployment.SINGLE), NOWHERE)
    assert store.client is None


@each(
    ("used", "limit", "usable"),
    [
        (set(), 5, 5),
        ({0, 1, 2}, 5, 5),
        (set(), 0, 0),
        ({7}, 1, 0),  # the slot of the one allowed client is beyond the limit
        ({7}, 2, 1),
        ({0, 7, 20, 33}, 5, 2),
        ({3, 7}, 1, -1),  # more clients than allowed, from a time with a higher limit
    ],
)
def test_the_usable_slots_keep_the_limit(used: set[int], limit: int, usable: int) -> None:
    assert usable_slots(used, limit) == usable


@each(("used", "limit"), [(set(), 0), ({0}, 1), ({9}, 1), ({0, 1, 2}, 2), ({5, 9}, 2)])
def test_there_is_no_free_slot_at_the_limit(used: set[int], limit: int) -> None:
    assert allocate_slots(used, limit) is None


def test_a_slot_is_chosen_from_a_few() -> None:
    assert set(allocate_slots({3, 500_000}, 1_000_000) or ()) < set(range(66)) - {3}
    assert set(allocate_slots(set(range(500)), None) or (0,)).isdisjoint(range(500))


def test_slots_for_several_clients_are_different_and_within_the_limit() -> None:
    assert set(allocate_slots({0, 2}, 5, 3) or ()) == {1, 3, 4}
    assert allocate_slots({0, 2}, 5, 4) is None
    assert allocate_slots({0, 2}, 2, 0) == []
    assert len(set(allocate_slots({7}, None, 1000) or ()) - {7}) == 1000


@each("seed", range(100))
def test_additions_end_exactly_at_the_limit(seed: int) -> None:
    source = Random(seed)  # noqa: S311  the same in each run
    used = set(source.sample(range(60), source.randrange(20)))
    before, limit = len(used), source.randrange(40)

    while slots := allocate_slots(used, limit):
        assert used.isdisjoint(slots)
        used.update(slots)

    assert len(used) == max(before, limit)


@each("seed", range(100))
def test_callers_with_an_outdated_state_do_not_exceed_the_limit(seed: int) -> None:
    source = Random(seed)  # noqa: S311  the same in each run
    used = set(source.sample(range(60), source.randrange(20)))
    limit = len(used) + source.randrange(10)
    states = [set(used)]

    for _ in range(200):
        if used and source.random() < 0.3:
            used.remove(source.choice(sorted(used)))
        saw = source.choice(states[-5:])
        if free := [slot for slot in range(usable_slots(saw, limit)) if slot not in saw]:
            used.add(source.choice(free))  # a set, like the unique index: a slot is used once
        states.append(set(used))

        assert len(used) <= limit


def test_a_token_is_a_uuid_and_no_two_are_equal() -> None:
    tokens = ClientTokens(KEYS)

    assert UUID(tokens.issue().text) != UUID(tokens.issue().text)


def test_a_token_is_recognised_in_any_letter_case() -> None:
    tokens = ClientTokens(KEYS)
    token = tokens.issue()

    assert tokens.digests(token.text) == tokens.digests(token.text.upper()) == (token.digest,)


def test_a_stored_digest_does_not_contain_the_token() -> None:
    token = ClientTokens(KEYS).issue()

    assert token.text not in token.digest
    assert token.hint == token.text[-4:]
    assert ClientTokens(Keys(KEY[::-1])).digests(token.text) != (token.digest,)


@each("text", ["", "nonsense", "\0", "\ud800", "{12345678-1234-1234-1234-123456789abc}", "a" * 9999])
def test_a_text_that_is_no_token_has_no_digest(text: str) -> None:
    assert ClientTokens(KEYS).digests(text) == ()
