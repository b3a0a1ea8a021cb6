"""The store of releases: indexes answer the queries of the background loop and of the pages."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import permutations
from uuid import uuid4

import pytest

from catalog_service.releases.gates import Policy
from catalog_service.releases.store import TIER, LastSigner, ReleaseQuery
from catalog_service.store import INDEXES, MongoCatalogStore
from common.mongo import MongoDatabase
from tests.support.databases import own_database
from tests.support.factories import make_tenant
from tests.support.tables import each

VERSIONS = 300  # of each of two tenants; two of them are in flight


@pytest.fixture(scope="module")
async def database(mongo_url: str) -> AsyncIterator[MongoDatabase]:
    async with own_database(mongo_url, indexes=INDEXES) as opened:
        yield opened


@pytest.fixture
async def tenant_id(database: MongoDatabase) -> str:
    """A tenant with versions, and another one with as many."""
    ids = [make_tenant().tenant_id for _ in range(2)]
    now = datetime.now(UTC)
    await database["versions"].delete_many({})
    await database["versions"].insert_many(
        {
            "tenant_id": tenant_id,
            "uid": str(uuid4()),
            "package_id": f"acme.app{number % 100}",
            "package_uid": "a package",
            "version": f"{number}.0",
            "version_key": f"{number}.0",
            "installer_key": f"{number}.0",
            "channel": "stable",
            "architecture": "x64",
            "server_filename": f"{number}.msi",
            "sha256": "ab" * 32,
            "state": "active",
            "halfway": False,
            "changed_at": now - timedelta(days=number),
            "stage": {"rings": [] if number < 2 else ["*"], "status": "active"},
            "release": {"in_flight": number < 2, "fence": 1, "due": now if number < 2 else None, "waiting": ["scan"]},
        }
        for tenant_id in ids
        for number in range(VERSIONS)
    )
    return ids[0]


async def examined(database: MongoDatabase) -> list[int]:
    """The numbers of documents that the recorded queries read."""
    profile = database["system.profile"]
    rows = await profile.find({"docsExamined": {"$exists": True}, "ns": f"{database.name}.versions"}).to_list(None)
    return [row["docsExamined"] for row in rows]


async def test_queries_read_only_the_versions_that_they_need(database: MongoDatabase, tenant_id: str) -> None:
    store = MongoCatalogStore(database, uploads_age=60)
    await database.command("profile", 2)
    due = await store.releases.due(100)
    page, total = await store.releases.page(tenant_id, ReleaseQuery(in_flight=True, package_id="", offset=0, limit=10))
    newest, _ = await store.releases.page(
        tenant_id, ReleaseQuery(in_flight=False, package_id="acme.app5", offset=0, limit=10)
    )
    waiting = await store.releases.waiting()
    earlier, _ = await store.releases.earlier(page[0])
    await store.policies.edit(tenant_id, lambda _: Policy(rings=("pilot", "everyone")))
    await database.command("profile", 0)

    assert (len(due), len(page), total, len(newest), waiting) == (4, 2, 2, 3, {"scan": 4})
    assert [version.package_id for version in earlier] == [page[0].package_id] * 2
    assert max(await examined(database)) <= 5


async def test_a_new_policy_makes_versions_in_flight_due(database: MongoDatabase, tenant_id: str) -> None:
    store = MongoCatalogStore(database, uploads_age=60)
    await database["versions"].update_many({"tenant_id": tenant_id}, {"$set": {"release.due": None}})
    await store.policies.edit(tenant_id, lambda _: Policy(rings=("pilot", "everyone")))
    due = [version for version in await store.releases.due(100) if version.tenant_id == tenant_id]
    assert [version.release.fence for version in due] == [2, 2]


@each(
    ("signers", "expected"),
    [
        ([("CN=A", 2), ("CN=B", 1)], ("CN=A", 2)),
        ([("CN=A", 2), (None, 3), ("CN=B", 1)], (None, 3)),
        ([("CN=A", 0), ("CN=A", 0)], ("CN=A", 0)),
        ([("CN=A", 0), ("CN=B", 0), ("CN=A", 0)], (None, 0)),
        ([("$rank", TIER), (None, 0)], ("$rank", TIER)),
    ],
)
async def test_the_order_of_deletions_does_not_change_the_last_signer(
    database: MongoDatabase, signers: list[tuple[str | None, int]], expected: tuple[str | None, int]
) -> None:
    store = MongoCatalogStore(database, uploads_age=60).releases
    for order in permutations(signers):
        tenant_id = make_tenant().tenant_id
        for signer in order:
            last = await store.remember_signer(tenant_id, "acme.editor", LastSigner(*signer))
        assert last == await store.last_signer(tenant_id, "Acme.Editor") == LastSigner(*expected), order


async def test_signers_of_concurrent_deletions_are_all_counted(database: MongoDatabase) -> None:
    store, tenant_id = MongoCatalogStore(database, uploads_age=60).releases, make_tenant().tenant_id
    signers = [LastSigner(f"CN={rank}", rank) for rank in range(20)]
    await asyncio.gather(*(store.remember_signer(tenant_id, "acme.editor", signer) for signer in signers))
    assert await store.last_signer(tenant_id, "acme.editor") == signers[-1]
