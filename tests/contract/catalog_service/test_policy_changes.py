"""A change of a tenant's rings reaches every reader, also while it is open, and after its writer died."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from catalog_service.catalog.revision_store import EVERY_PACKAGE, TIMEOUT
from catalog_service.releases.gates import Gates, Policy
from catalog_service.store import INDEXES, MongoCatalogStore
from common.errors import Problem
from common.mongo import MongoDatabase, MongoError
from common.tenants import DEFAULT_RING
from tests.support.databases import own_database
from tests.support.factories import make_tenant

RINGS = Policy(rings=("pilot", "everyone"))


def replacing_by(policy: Policy) -> Callable[[Policy], Policy]:
    return lambda _: policy


@dataclass(frozen=True)
class Tenant:
    """A tenant of its own, whose catalog has a revision."""

    store: MongoCatalogStore
    database: MongoDatabase
    tenant_id: str = field(default_factory=lambda: make_tenant().tenant_id)

    async def revision(self) -> str:
        return (await self.store.revisions.state(self.tenant_id, "")).revision

    async def changes_since(self, revision: str) -> object:
        return (await self.store.revisions.state(self.tenant_id, "")).since(revision)

    async def change_package(self) -> None:
        async with self.store.revisions.record_change(self.tenant_id, "an.app"):
            pass

    async def die_within_a_change(self, package_id: str) -> None:
        with pytest.raises(MongoError):
            async with self.store.revisions.record_change(self.tenant_id, package_id):
                raise MongoError("away")


@pytest.fixture(scope="module")
async def database(mongo_url: str) -> AsyncIterator[MongoDatabase]:
    async with own_database(mongo_url, indexes=INDEXES) as opened:
        yield opened


@pytest.fixture
def tenant(database: MongoDatabase) -> Tenant:
    return Tenant(MongoCatalogStore(database, uploads_age=3600), database)


async def test_readers_read_everything_after_a_policy_change(tenant: Tenant) -> None:
    before = await tenant.revision()
    await tenant.change_package()
    between = await tenant.revision()
    assert await tenant.changes_since(before) == {"an.app"}

    await tenant.store.policies.edit(tenant.tenant_id, lambda _: RINGS)

    after = await tenant.revision()
    assert len({before, between, after}) == 3
    assert [await tenant.changes_since(revision) for revision in (before, between)] == [None, None]
    assert await tenant.changes_since(after) == frozenset()
    await tenant.change_package()
    assert await tenant.changes_since(after) == {"an.app"}
    assert await tenant.changes_since(before) is None


async def test_readers_read_everything_while_a_policy_changes(tenant: Tenant) -> None:
    before = await tenant.revision()

    async with tenant.store.revisions.record_change(tenant.tenant_id, EVERY_PACKAGE):
        state = await tenant.store.revisions.state(tenant.tenant_id, before)

        assert (state.revision, state.stable_revision, state.since(before)) == (before, "", None)


async def test_readers_read_everything_until_one_closes_the_policy_change_of_a_dead_writer(tenant: Tenant) -> None:
    before = await tenant.revision()
    await tenant.die_within_a_change(EVERY_PACKAGE)
    assert await tenant.changes_since(before) is None
    await tenant.change_package()
    between = await tenant.revision()
    assert [await tenant.changes_since(revision) for revision in (before, between)] == [None, None]
    key = {"tenant_id": tenant.tenant_id}
    document = await tenant.database["revisions"].find_one(key)
    assert document
    (token,) = document["open"]
    since = document["open"][token]["since"] - TIMEOUT - timedelta(seconds=1)
    await tenant.database["revisions"].update_one(key, {"$set": {f"open.{token}.since": since}})

    assert await tenant.changes_since(between) is None  # This reader closes the change.

    after = await tenant.revision()
    assert len({before, between, after}) == 3
    assert await tenant.changes_since(before) is None
    assert await tenant.changes_since(after) == frozenset()


async def test_a_refused_policy_change_is_no_change(tenant: Tenant) -> None:
    before = await tenant.revision()

    with pytest.raises(Problem):
        async with tenant.store.revisions.record_change(tenant.tenant_id, EVERY_PACKAGE):
            raise Problem

    assert await tenant.revision() == before
    assert await tenant.changes_since(before) == frozenset()


async def test_a_tenant_has_rings_if_its_policy_has_rings_or_gates(tenant: Tenant) -> None:
    assert await tenant.store.policies.rings(tenant.tenant_id) == ()
    for policy, rings in (
        (RINGS, ("pilot", "everyone")),
        (Policy(gates={DEFAULT_RING: Gates(approvals=1)}), (DEFAULT_RING,)),
        (Policy(), ()),
    ):
        await tenant.store.policies.edit(tenant.tenant_id, replacing_by(policy))
        assert await tenant.store.policies.rings(tenant.tenant_id) == rings
        assert await tenant.store.policies.find(tenant.tenant_id) == policy
