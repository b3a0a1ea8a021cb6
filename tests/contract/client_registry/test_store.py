"""The stores of client_registry on a real MongoDB: races have one winner, and tenants are separate."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from client_registry.blacklist.store import Entry, Group, GroupExists, GroupInUse, GroupNotFound, MongoBlacklistStore
from client_registry.clients.enrollment import Enrollment
from client_registry.clients.service import Clients, ClientTokens, IssuedToken, SystemResolver
from client_registry.clients.store import (
    Client,
    ClientExists,
    ClientLimitExceeded,
    ClientNotFound,
    MongoClientStore,
    SlotTaken,
)
from client_registry.releases.store import Installer, MongoReleaseStore, Release, ReleaseExists
from client_registry.store import SCHEMA
from common.auth.internal_tokens import Caller
from common.auth.signing import Keys
from common.errors import Problem
from common.mongo import MongoDatabase
from common.redis import Redis, WindowCounts
from tests.support.databases import own_database
from tests.support.factories import KEY, KEYS, make_caller, make_tenant
from tests.support.services.tenant_first import TenantFilterCheck
from tests.support.tables import each

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def listener() -> TenantFilterCheck:
    return TenantFilterCheck()


@pytest.fixture(scope="module")
async def database(mongo_url: str, listener: TenantFilterCheck) -> AsyncIterator[MongoDatabase]:
    """A database with recorded commands; the service's connection settings apply."""
    async with own_database(mongo_url, indexes=SCHEMA.indexes, event_listeners=[listener]) as opened:
        yield opened


@pytest.fixture
def tenant_id() -> str:
    return make_tenant().tenant_id


@pytest.fixture
def store(database: MongoDatabase) -> MongoClientStore:
    return MongoClientStore(database)


@pytest.fixture
def blacklist(database: MongoDatabase) -> MongoBlacklistStore:
    return MongoBlacklistStore(database)


@pytest.fixture
def releases(database: MongoDatabase) -> MongoReleaseStore:
    return MongoReleaseStore(database)


class NoResolver(SystemResolver):
    """Resolves no name, as in the multi-tenant deployment."""

    def __init__(self) -> None: ...

    async def resolve(self, name: str) -> str:
        raise AssertionError(name)


def make_client(name: str = "pc", **fields: Any) -> Client:
    return Client(**{"client_id": str(uuid4()), "name": name, "created_at": NOW, "token_hint": "abcd", **fields})


def make_entry(**fields: Any) -> Entry:
    empty = {"client_id": None, "network": None, "package_ids": ("a",), "group_id": None}
    return Entry(**{"entry_id": str(uuid4()), **empty, "created_at": NOW, **fields})


def make_group(name: str = "Browsers") -> Group:
    return Group(str(uuid4()), name, ("a", "b"), NOW)


async def outcomes(*attempts: Awaitable[object]) -> list[type[Problem] | None]:
    """The results of concurrent calls: None, or the error."""
    results = await asyncio.gather(*attempts, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, Problem):
            raise result
    return [type(result) if isinstance(result, Problem) else None for result in results]


@each("collection", SCHEMA.indexes)
def test_every_index_except_the_sweep_begins_with_the_tenant(collection: str) -> None:
    firsts = [next(iter(index.document["key"])) for index in SCHEMA.indexes[collection]]

    assert set(firsts) - {"tenant_id"} <= ({"status"} if collection == "releases" else set())


async def test_a_client_is_read_as_it_was_added(store: MongoClientStore, tenant_id: str) -> None:
    client = make_client(ip="192.0.2.1", last_seen=NOW, program=1, enabled=False)
    await store.add(tenant_id, client, digest="d", key_id="key", slot=0)

    assert await store.list(tenant_id) == [client]
    assert await store.find_by_digests(tenant_id, ["x", "d"]) == (client, "key")


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_sighting_stores_the_first_of_the_digests_unless_the_token_was_replaced(
    store: MongoClientStore, tenant_id: str, is_replaced: bool
) -> None:
    client = make_client()
    await store.add(tenant_id, client, digest="old", key_id="key", slot=0)
    if is_replaced:
        await store.change(tenant_id, client.client_id, {"token_digest": "another"})

    await store.record_sighting(
        tenant_id, client.client_id, digests=["new", "old"], key_id="key", ip="192.0.2.1", program=1, at=NOW
    )

    assert await store.find_by_digests(tenant_id, ["old"]) == (None, "")
    if is_replaced:
        assert await store.find_by_digests(tenant_id, ["new"]) == (None, "")
        assert await store.find_by_digests(tenant_id, ["another"]) == (client, "key")
    else:
        seen = replace(client, ip="192.0.2.1", program=1, last_seen=NOW)
        assert await store.find_by_digests(tenant_id, ["new"]) == (seen, "key")


async def test_only_clients_that_need_the_old_key_are_named(store: MongoClientStore) -> None:
    caller, old, new = make_caller(), Keys("the-old-key-of-thirty-two-letters-and-more"), Keys(KEY)
    before = Clients(store, ClientTokens(old), NoResolver())
    tokens = {name: (await before.add(caller, name))[1].text for name in ("calls-at-once", "Silent", "rotated", "off")}
    ids = {client.name: client.client_id for client in await store.list(caller.tenant_id)}
    for name in ("calls-at-once", "off"):
        assert await before.identify(caller, tokens[name], 1)
    during = Clients(store, ClientTokens(Keys(f"{new.signing} {old.signing}")), NoResolver())
    assert await during.identify(caller, tokens["calls-at-once"], 1)
    await during.rotate_token(caller.tenant_id, ids["rotated"])
    await during.add(caller, "added")

    assert await store.names_under_other_keys(caller.tenant_id, new.signing_id) == ["off", "Silent"]
    assert await store.names_under_other_keys("another", new.signing_id) == []


async def test_clients_seen_since_each_time_are_counted(store: MongoClientStore, tenant_id: str) -> None:
    since = {"day": NOW - timedelta(days=1), "week": NOW - timedelta(days=7), "month": NOW - timedelta(days=30)}
    assert await store.count_seen(tenant_id, since) == {"day": 0, "week": 0, "month": 0}
    for number, days in enumerate((None, 0, 1, 2, 20, 31)):
        last_seen = None if days is None else NOW - timedelta(days=days)
        client = make_client(str(number), created_at=NOW, last_seen=last_seen)
        await store.add(tenant_id, client, digest=client.name, key_id="key", slot=number)

    assert await store.count_seen(tenant_id, since) == {"day": 2, "week": 3, "month": 4}
    assert await store.count_seen("another", since) == {"day": 0, "week": 0, "month": 0}


async def test_a_token_and_a_slot_belong_to_one_client(store: MongoClientStore, tenant_id: str) -> None:
    await store.add(tenant_id, make_client("one"), digest="1", key_id="key", slot=0)

    with pytest.raises(ClientExists):
        await store.add(tenant_id, make_client("two"), digest="1", key_id="key", slot=1)
    with pytest.raises(SlotTaken):
        await store.add(tenant_id, make_client("two"), digest="2", key_id="key", slot=0)


async def test_one_of_many_concurrent_clients_with_one_name_is_added(store: MongoClientStore) -> None:
    clients, caller = Clients(store, ClientTokens(KEYS), NoResolver()), make_caller()

    results = await outcomes(*(clients.add(caller, "pc" if number % 2 else "PC") for number in range(50)))

    assert results.count(None) == 1
    assert results.count(ClientExists) == 49
    assert len(await store.list(caller.tenant_id)) == 1


@pytest.mark.parametrize(("limit", "added"), [(5, 5), (0, 0), (None, 50)])
async def test_concurrent_additions_fill_the_limit_exactly(
    store: MongoClientStore, limit: int | None, added: int
) -> None:
    clients, caller = Clients(store, ClientTokens(KEYS), NoResolver()), make_caller(make_tenant(max_clients=limit))

    results = await outcomes(*(clients.add(caller, f"pc-{number}") for number in range(50)))

    assert (results.count(None), results.count(ClientLimitExceeded)) == (added, 50 - added)
    assert len(await store.list(caller.tenant_id)) == added


async def test_a_later_limit_counts_existing_clients(store: MongoClientStore) -> None:
    clients, tenant = Clients(store, ClientTokens(KEYS), NoResolver()), make_tenant()
    for number in range(4):
        await clients.add(make_caller(tenant), f"old-{number}")
    limited = make_caller(make_tenant(tenant_id=tenant.tenant_id, max_clients=6))

    results = await outcomes(*(clients.add(limited, f"new-{number}") for number in range(10)))

    assert results.count(None) == 2
    assert len(await store.list(tenant.tenant_id)) == 6


async def test_one_of_many_concurrent_deletions_of_a_client_succeeds(store: MongoClientStore, tenant_id: str) -> None:
    client = make_client()
    await store.add(tenant_id, client, digest="d", key_id="key", slot=0)

    deleted = await asyncio.gather(*(store.delete(tenant_id, client.client_id, digests=["d"]) for _ in range(10)))

    assert sorted(deleted) == [False] * 9 + [True]


async def test_a_client_is_deleted_with_its_entries(
    store: MongoClientStore, blacklist: MongoBlacklistStore, tenant_id: str
) -> None:
    client = make_client()
    await store.add(tenant_id, client, digest="d", key_id="key", slot=0)
    about = [make_entry(client_id=client.client_id) for _ in range(10)]

    results = await outcomes(
        store.delete(tenant_id, client.client_id, digests=["d"]),
        *(blacklist.add_entry(tenant_id, entry) for entry in about),
    )

    assert set(results) <= {None, ClientNotFound}
    assert await store.list(tenant_id) == []
    assert await blacklist.entries(tenant_id) == []


async def test_one_of_concurrent_equal_groups_is_added_and_all_entries_can_use_it(
    blacklist: MongoBlacklistStore, tenant_id: str
) -> None:
    candidates = [make_group() for _ in range(20)]
    results = await outcomes(*(blacklist.add_group(tenant_id, group) for group in candidates))
    assert (results.count(None), results.count(GroupExists)) == (1, 19)
    group = candidates[results.index(None)]
    assert await blacklist.groups(tenant_id) == await blacklist.groups_of(tenant_id, [group.group_id]) == [group]

    entries = [make_entry(group_id=group.group_id) for _ in range(20)]
    assert await outcomes(*(blacklist.add_entry(tenant_id, entry) for entry in entries)) == [None] * 20


async def test_no_entry_refers_to_a_deleted_group(blacklist: MongoBlacklistStore, tenant_id: str) -> None:
    for number in range(20):
        group = make_group(f"group {number}")
        await blacklist.add_group(tenant_id, group)
        added, deleted = await outcomes(
            blacklist.add_entry(tenant_id, make_entry(group_id=group.group_id)),
            blacklist.delete_group(tenant_id, group.group_id),
        )
        assert (added, deleted) in {(None, GroupInUse), (GroupNotFound, None)}


async def test_entries_for_a_client_exclude_those_of_others(
    store: MongoClientStore, blacklist: MongoBlacklistStore, tenant_id: str
) -> None:
    first, other = make_client("one"), make_client("other")
    entries = [make_entry(), make_entry(client_id=first.client_id), make_entry(client_id=other.client_id)]
    for seat, client in enumerate((first, other)):
        await store.add(tenant_id, client, digest=str(seat), key_id="key", slot=seat)
    for entry in entries:
        await blacklist.add_entry(tenant_id, entry)

    applied = await blacklist.entries_for(tenant_id, first.client_id)

    assert {entry.entry_id for entry in applied} == {entry.entry_id for entry in entries[:2]}


async def test_one_of_many_concurrent_publications_of_a_version_wins(
    releases: MongoReleaseStore, tenant_id: str
) -> None:
    results = await outcomes(
        *(releases.add(tenant_id, Release(str(uuid4()), "1.0.0.0", NOW)) for _ in range(10)),
        *(releases.reserve(tenant_id, str(uuid4()), "1.0.0.0", NOW) for _ in range(10)),
    )

    assert results.count(None) == 1
    assert results.count(ReleaseExists) == 19


async def test_a_release_is_active_after_its_file_is_claimed(releases: MongoReleaseStore, tenant_id: str) -> None:
    release = Release(str(uuid4()), "1.0.0.0", NOW, Installer("f.exe", 7, "ab" * 32))
    await releases.reserve(tenant_id, release.uid, release.version, NOW)
    assert await releases.latest(tenant_id) is None

    assert await releases.activate(tenant_id, release)
    assert not await releases.activate(tenant_id, release)
    await releases.abandon(tenant_id, release.uid)  # Both have no effect on an active release.
    await releases.remove(tenant_id, release.uid)
    assert await releases.latest(tenant_id) == release


async def test_an_abandoned_release_is_never_active(releases: MongoReleaseStore, tenant_id: str) -> None:
    release = Release(str(uuid4()), "1.0.0.0", NOW)
    await releases.reserve(tenant_id, release.uid, release.version, NOW)

    await releases.abandon(tenant_id, release.uid)

    assert not await releases.activate(tenant_id, release)
    await releases.reserve(tenant_id, str(uuid4()), release.version, NOW)


async def test_deleting_a_tenant_removes_its_data_and_no_other(
    store: MongoClientStore,
    blacklist: MongoBlacklistStore,
    releases: MongoReleaseStore,
    database: MongoDatabase,
    tenant_id: str,
) -> None:
    other = make_tenant().tenant_id
    for owner in (tenant_id, other):
        await store.add(owner, make_client(), digest="d", key_id="key", slot=0)
        await blacklist.add_entry(owner, make_entry())
        await blacklist.add_group(owner, make_group())
        await releases.add(owner, Release(str(uuid4()), "1.0.0.0", NOW))

    await store.forget_tenant(tenant_id)

    deleted_counts = [await database[name].count_documents({"tenant_id": tenant_id}) for name in SCHEMA.indexes]
    remaining_counts = [await database[name].count_documents({"tenant_id": other}) for name in SCHEMA.indexes]
    assert (deleted_counts, remaining_counts) == ([0] * 4, [1] * 4)


async def test_every_command_begins_with_the_tenant(
    store: MongoClientStore,
    blacklist: MongoBlacklistStore,
    releases: MongoReleaseStore,
    listener: TenantFilterCheck,
) -> None:
    caller, entries = make_caller(make_tenant(max_clients=5)), blacklist
    clients, tenant_id = Clients(store, ClientTokens(KEYS), NoResolver()), caller.tenant_id
    client, token = await clients.add(caller, "pc")
    group = make_group()
    await entries.add_group(tenant_id, group)
    entry = make_entry(client_id=client.client_id, package_ids=(), group_id=group.group_id)
    await entries.add_entry(tenant_id, entry)
    await clients.identify(caller, token.text, 1)
    await entries.hidden_from(caller.as_client(client.client_id))
    await clients.edit(tenant_id, client.client_id, {"enabled": True})
    _, token = await clients.rotate_token(tenant_id, client.client_id)
    await clients.delete(tenant_id, client.client_id, token.text)
    with pytest.raises(Problem):
        await entries.delete_entry(tenant_id, entry.entry_id)
    await entries.delete_group(tenant_id, group.group_id)
    await releases.latest(tenant_id)
    await store.forget_tenant(tenant_id)

    assert listener.seen > 100
    assert listener.violations == []


class OvertakenClients(Clients):
    """Another call of the same machine adds the client just before."""

    async def add(self, caller: Caller, name: str, *, enrolled_by: str = "") -> tuple[Client, IssuedToken]:
        await super().add(caller, name, enrolled_by=enrolled_by)
        return await super().add(caller, name, enrolled_by=enrolled_by)


async def test_a_machine_whose_calls_overtake_each_other_is_one_client(
    store: MongoClientStore, redis: Redis, tenant_id: str
) -> None:
    caller = make_caller(make_tenant(tenant_id=tenant_id), token_id="0123456789abcdef")
    tokens = ClientTokens(KEYS)
    counts = WindowCounts(redis, f"enrolled:{uuid4().hex}")
    enrollment = Enrollment(store, tokens, OvertakenClients(store, tokens, NoResolver()), counts, 10)

    client, token, is_new = await enrollment.enroll(caller, "pc-1")

    assert not is_new
    assert [each.client_id for each in await store.list(tenant_id)] == [client.client_id]
    assert (await store.find_by_digests(tenant_id, tokens.digests(token.text)))[0] == client
