"""What client_registry's stores promise, on a real MongoDB: races have one winner, and tenants never meet."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from motor.motor_asyncio import AsyncIOMotorClient

from client_registry.blacklist.model import Entry, Group, GroupExists, GroupInUse, GroupNotFound
from client_registry.blacklist.service import Blacklist
from client_registry.blacklist.store import MongoBlacklistStore
from client_registry.clients.model import Client, ClientExists, ClientLimitExceeded, ClientNotFound, SlotTaken
from client_registry.clients.service import Clients
from client_registry.clients.store import MongoClientStore
from client_registry.clients.tokens import ClientTokens
from client_registry.migrations import SCHEMA
from client_registry.releases.model import Installer, Release, ReleaseExists
from client_registry.releases.store import MongoReleaseStore
from common.errors import Problem
from common.mongo import Document, MongoDatabase, make_indexes
from tests.support.factories import KEYS, make_caller, make_tenant
from tests.support.services.tenant_first import TenantFilterCheck
from tests.support.tables import each

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def listener() -> TenantFilterCheck:
    return TenantFilterCheck()


@pytest.fixture(scope="module")
async def database(mongo_url: str, listener: TenantFilterCheck) -> AsyncIterator[MongoDatabase]:
    """A database whose commands are listened to, written and read as the service does."""
    client: AsyncIOMotorClient[Document] = AsyncIOMotorClient(
        mongo_url, event_listeners=[listener], tz_aware=True, w="majority", readConcernLevel="majority"
    )
    name = f"test_clients_{uuid4().hex[:12]}"
    await make_indexes(client[name], SCHEMA.indexes)
    yield client[name]
    await client.drop_database(name)
    client.close()


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


class NoNames:
    """For the multi-tenant deployment, which resolves none."""

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
    """What each of several attempts at once came to: None, or the problem it was refused with."""
    results = await asyncio.gather(*attempts, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, Problem):
            raise result
    return [type(result) if isinstance(result, Problem) else None for result in results]


@each("collection", SCHEMA.indexes)
def test_every_index_but_the_sweeps_begins_with_the_tenant(collection: str) -> None:
    firsts = [next(iter(index.document["key"])) for index in SCHEMA.indexes[collection]]

    assert set(firsts) - {"tenant_id"} <= ({"status"} if collection == "releases" else set())


async def test_a_client_is_kept_as_it_is(store: MongoClientStore, tenant_id: str) -> None:
    client = make_client(ip="192.0.2.1", last_seen=NOW, program=1, enabled=False)
    await store.add(tenant_id, client, digest="d", slot=0)

    assert await store.list(tenant_id) == [client]
    assert await store.find_by_digests(tenant_id, ["x", "d"]) == client


async def test_a_sighting_keeps_the_first_of_the_digests(store: MongoClientStore, tenant_id: str) -> None:
    client = make_client()
    await store.add(tenant_id, client, digest="old", slot=0)

    await store.record_sighting(tenant_id, client.client_id, digests=["new", "old"], ip="192.0.2.1", program=1, at=NOW)

    assert await store.find_by_digests(tenant_id, ["old"]) is None
    assert await store.find_by_digests(tenant_id, ["new"]) == replace(client, ip="192.0.2.1", program=1, last_seen=NOW)


async def test_a_sighting_brings_no_token_back_that_was_replaced_meanwhile(
    store: MongoClientStore, tenant_id: str
) -> None:
    client = make_client()
    await store.add(tenant_id, client, digest="old", slot=0)
    await store.set_token(tenant_id, client.client_id, digest="another", hint=client.token_hint)

    await store.record_sighting(tenant_id, client.client_id, digests=["new", "old"], ip="192.0.2.1", program=1, at=NOW)

    assert await store.find_by_digests(tenant_id, ["new", "old"]) is None
    assert await store.find_by_digests(tenant_id, ["another"]) == client


async def test_who_was_not_seen_since_a_moment_is_counted(store: MongoClientStore, tenant_id: str) -> None:
    before, after = NOW - timedelta(seconds=1), NOW + timedelta(seconds=1)
    clients = (
        make_client("never", created_at=before),
        make_client("long ago", created_at=before, last_seen=before),
        make_client("since", created_at=before, last_seen=after),
        make_client("new", created_at=after),
    )
    for number, client in enumerate(clients):
        await store.add(tenant_id, client, digest=client.name, slot=number)

    assert await store.count_unseen(tenant_id, NOW) == 2


async def test_a_token_belongs_to_one_client(store: MongoClientStore, tenant_id: str) -> None:
    await store.add(tenant_id, make_client("one"), digest="d", slot=0)

    with pytest.raises(ClientExists):
        await store.add(tenant_id, make_client("two"), digest="d", slot=1)


async def test_a_seat_has_room_for_one_client(store: MongoClientStore, tenant_id: str) -> None:
    await store.add(tenant_id, make_client("one"), digest="1", slot=0)

    with pytest.raises(SlotTaken):
        await store.add(tenant_id, make_client("two"), digest="2", slot=0)


async def test_of_many_who_add_one_name_at_once_one_wins(store: MongoClientStore) -> None:
    clients, caller = Clients(store, ClientTokens(KEYS), NoNames()), make_caller()

    came_to = await outcomes(*(clients.add(caller, "pc" if number % 2 else "PC") for number in range(50)))

    assert came_to.count(None) == 1
    assert came_to.count(ClientExists) == 49
    assert await store.count(caller.tenant_id) == 1


async def test_of_many_who_add_clients_at_once_as_many_win_as_may_be(store: MongoClientStore) -> None:
    clients, caller = Clients(store, ClientTokens(KEYS), NoNames()), make_caller(make_tenant(max_clients=5))

    came_to = await outcomes(*(clients.add(caller, f"pc-{number}") for number in range(20)))

    assert came_to.count(None) == 5
    assert came_to.count(ClientLimitExceeded) == 15
    assert await store.count(caller.tenant_id) == 5


async def test_a_limit_set_later_counts_the_clients_there_are(store: MongoClientStore) -> None:
    clients, tenant = Clients(store, ClientTokens(KEYS), NoNames()), make_tenant()
    for number in range(4):
        await clients.add(make_caller(tenant), f"old-{number}")
    limited = make_caller(make_tenant(tenant_id=tenant.tenant_id, max_clients=6))

    came_to = await outcomes(*(clients.add(limited, f"new-{number}") for number in range(10)))

    assert came_to.count(None) == 2
    assert await store.count(tenant.tenant_id) == 6


async def test_without_a_limit_all_who_add_clients_at_once_win(store: MongoClientStore) -> None:
    clients, caller = Clients(store, ClientTokens(KEYS), NoNames()), make_caller()

    assert await outcomes(*(clients.add(caller, f"pc-{number}") for number in range(50))) == [None] * 50


async def test_of_many_who_delete_a_client_at_once_one_does(store: MongoClientStore, tenant_id: str) -> None:
    client = make_client()
    await store.add(tenant_id, client, digest="d", slot=0)

    deleted = await asyncio.gather(*(store.delete(tenant_id, client.client_id, digests=["d"]) for _ in range(10)))

    assert sorted(deleted) == [False] * 9 + [True]


async def test_a_client_goes_together_with_the_entries_about_it(
    store: MongoClientStore, blacklist: MongoBlacklistStore, tenant_id: str
) -> None:
    client = make_client()
    await store.add(tenant_id, client, digest="d", slot=0)
    about = [make_entry(client_id=client.client_id) for _ in range(10)]

    came_to = await outcomes(
        store.delete(tenant_id, client.client_id, digests=["d"]),
        *(blacklist.add_entry(tenant_id, entry) for entry in about),
    )

    assert set(came_to) <= {None, ClientNotFound}
    assert await store.list(tenant_id) == []
    assert await blacklist.entries(tenant_id) == []


async def test_a_group_is_kept_as_it_is(blacklist: MongoBlacklistStore, tenant_id: str) -> None:
    group = make_group()
    await blacklist.add_group(tenant_id, group)

    assert await blacklist.groups(tenant_id) == await blacklist.groups_of(tenant_id, [group.group_id]) == [group]


async def test_of_many_who_add_a_group_at_once_one_wins(blacklist: MongoBlacklistStore, tenant_id: str) -> None:
    came_to = await outcomes(*(blacklist.add_group(tenant_id, make_group()) for _ in range(20)))

    assert came_to.count(None) == 1
    assert came_to.count(GroupExists) == 19


async def test_no_entry_is_left_with_a_group_that_is_gone(blacklist: MongoBlacklistStore, tenant_id: str) -> None:
    for number in range(20):
        group = make_group(f"group {number}")
        await blacklist.add_group(tenant_id, group)
        added, deleted = await outcomes(
            blacklist.add_entry(tenant_id, make_entry(group_id=group.group_id)),
            blacklist.delete_group(tenant_id, group.group_id),
        )

        assert (added, deleted) in {(None, GroupInUse), (GroupNotFound, None)}


async def test_many_may_use_one_group_at_once(blacklist: MongoBlacklistStore, tenant_id: str) -> None:
    group = make_group()
    await blacklist.add_group(tenant_id, group)

    entries = [make_entry(group_id=group.group_id) for _ in range(30)]

    assert await outcomes(*(blacklist.add_entry(tenant_id, entry) for entry in entries)) == [None] * 30


async def test_entries_for_a_client_leave_out_those_about_others(
    store: MongoClientStore, blacklist: MongoBlacklistStore, tenant_id: str
) -> None:
    one, other = make_client("one"), make_client("other")
    entries = [make_entry(), make_entry(client_id=one.client_id), make_entry(client_id=other.client_id)]
    for seat, client in enumerate((one, other)):
        await store.add(tenant_id, client, digest=str(seat), slot=seat)
    for entry in entries:
        await blacklist.add_entry(tenant_id, entry)

    found = await blacklist.entries_for(tenant_id, one.client_id)

    assert {entry.entry_id for entry in found} == {entry.entry_id for entry in entries[:2]}


async def test_of_many_who_publish_a_version_at_once_one_wins(releases: MongoReleaseStore, tenant_id: str) -> None:
    came_to = await outcomes(
        *(releases.add(tenant_id, Release(str(uuid4()), "1.0.0.0", NOW)) for _ in range(10)),
        *(releases.reserve(tenant_id, str(uuid4()), "1.0.0.0", NOW) for _ in range(10)),
    )

    assert came_to.count(None) == 1
    assert came_to.count(ReleaseExists) == 19


async def test_a_release_is_active_once_its_file_is_claimed(releases: MongoReleaseStore, tenant_id: str) -> None:
    release = Release(str(uuid4()), "1.0.0.0", NOW, Installer("f.exe", 7, "ab" * 32))
    await releases.reserve(tenant_id, release.uid, release.version, NOW)
    assert await releases.latest(tenant_id) is None

    assert await releases.activate(tenant_id, release)
    assert not await releases.activate(tenant_id, release)
    assert await releases.latest(tenant_id) == release


async def test_an_abandoned_release_is_never_active(releases: MongoReleaseStore, tenant_id: str) -> None:
    release = Release(str(uuid4()), "1.0.0.0", NOW)
    await releases.reserve(tenant_id, release.uid, release.version, NOW)

    await releases.abandon(tenant_id, release.uid)

    assert not await releases.activate(tenant_id, release)
    await releases.reserve(tenant_id, str(uuid4()), release.version, NOW)


async def test_an_active_release_is_neither_abandoned_nor_removed(releases: MongoReleaseStore, tenant_id: str) -> None:
    release = Release(str(uuid4()), "1.0.0.0", NOW)
    await releases.add(tenant_id, release)

    await releases.abandon(tenant_id, release.uid)
    await releases.remove(tenant_id, release.uid)

    assert await releases.latest(tenant_id) == release


async def test_a_forgotten_tenant_leaves_nothing_and_others_all(
    store: MongoClientStore,
    blacklist: MongoBlacklistStore,
    releases: MongoReleaseStore,
    database: MongoDatabase,
    tenant_id: str,
) -> None:
    other = make_tenant().tenant_id
    for owner in (tenant_id, other):
        await store.add(owner, make_client(), digest="d", slot=0)
        await blacklist.add_entry(owner, make_entry())
        await blacklist.add_group(owner, make_group())
        await releases.add(owner, Release(str(uuid4()), "1.0.0.0", NOW))

    await store.forget_tenant(tenant_id)

    left = [await database[name].count_documents({"tenant_id": tenant_id}) for name in SCHEMA.indexes]
    kept = [await database[name].count_documents({"tenant_id": other}) for name in SCHEMA.indexes]
    assert (left, kept) == ([0] * 4, [1] * 4)


async def test_every_command_begins_with_the_tenant(
    store: MongoClientStore,
    blacklist: MongoBlacklistStore,
    releases: MongoReleaseStore,
    listener: TenantFilterCheck,
) -> None:
    caller, listed = make_caller(make_tenant(max_clients=5)), Blacklist(blacklist)
    clients, tenant_id = Clients(store, ClientTokens(KEYS), NoNames()), caller.tenant_id
    client, token = await clients.add(caller, "pc")
    group = await listed.add_group(tenant_id, "Browsers", ["a"])
    entry = make_entry(client_id=client.client_id, package_ids=(), group_id=group.group_id)
    await listed.add_entry(tenant_id, entry)
    await clients.identify(caller, token.text, 1)
    await listed.hidden_from(caller.as_client(client.client_id))
    await clients.edit(tenant_id, client.client_id, enabled=True)
    token = await clients.rotate_token(tenant_id, client.client_id)
    await clients.delete(tenant_id, client.client_id, token.text)
    with pytest.raises(Problem):
        await listed.delete_entry(tenant_id, entry.entry_id)
    await listed.delete_group(tenant_id, group.group_id)
    await releases.latest(tenant_id)
    await store.forget_tenant(tenant_id)

    assert listener.seen > 100
    assert listener.violations == []
