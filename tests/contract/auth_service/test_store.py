"""The stores of auth_service on a real MongoDB: races have one winner, and tenants are separate."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from auth_service.audit.service import Audit
from auth_service.audit.store import AuditEntry, AuditSigner, ChainedEntry, MongoAuditStore, Selection
from auth_service.store import SCHEMA
from auth_service.tenants.service import Tenants
from auth_service.tenants.store import MongoTenantStore, TenantExists, TenantNotFound
from auth_service.users.store import LastAdministrator, MongoUserStore, User, UserExists
from auth_service.users.token_store import TokenGrant, Tokens
from common.auth.internal_tokens import Caller
from common.auth.roles import ADMINISTRATOR, Role
from common.auth.signing import ApiToken
from common.mongo import MongoDatabase
from common.redis import TenantVersions
from common.tenants import Tenant, VersionKey
from tests.support.databases import own_database
from tests.support.factories import KEY, make_caller, make_tenant
from tests.support.services.tenant_first import TenantFilterCheck

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def listener() -> TenantFilterCheck:
    return TenantFilterCheck()


@pytest.fixture(scope="module")
async def database(mongo_url: str, listener: TenantFilterCheck) -> AsyncIterator[MongoDatabase]:
    """A database with recorded commands; the service's connection settings apply."""
    async with own_database(mongo_url, indexes=SCHEMA.indexes, event_listeners=[listener]) as opened:
        yield opened


class RecordedVersions(TenantVersions):
    """Records the tenant before and after each change."""

    def __init__(self, database: MongoDatabase) -> None:
        self._store = MongoTenantStore(database)
        self.seen: list[Tenant | None] = []

    @asynccontextmanager
    async def invalidate_access_during(self, tenant_id: str) -> AsyncIterator[None]:
        self.seen.append(await self._store.find(tenant_id))
        yield
        self.seen.append(await self._store.find(tenant_id))


@pytest.fixture
def versions(database: MongoDatabase) -> RecordedVersions:
    return RecordedVersions(database)


@pytest.fixture
def tenants(database: MongoDatabase, versions: RecordedVersions) -> Tenants:
    return Tenants(MongoTenantStore(database), versions)


@pytest.fixture
def users(database: MongoDatabase) -> MongoUserStore:
    return MongoUserStore(database)


@pytest.fixture
def tokens(database: MongoDatabase, versions: RecordedVersions) -> Tokens:
    return Tokens(database, versions)


@pytest.fixture
def audit(database: MongoDatabase) -> Audit:
    return Audit(MongoAuditStore(database), AuditSigner(KEY))


@pytest.fixture
async def tenant(tenants: Tenants) -> Tenant:
    new_tenant = make_tenant()
    await tenants.create(new_tenant)
    return new_tenant


def make_user(tenant: Tenant, username: str = "ada") -> User:
    return User(tenant.tenant_id, username, "hash", NOW)


async def add_token(tokens: Tokens, tenant: Tenant) -> tuple[Caller, ApiToken]:
    """A new token of the tenant, and its creator."""
    ada = make_caller(tenant).as_administrator("ada", "", ADMINISTRATOR)
    _, text = await tokens.create(ada, TokenGrant("ci", (Role.PUBLISHER,)), 90)
    return ada, ApiToken.parse(text)


async def record(audit: Audit, tenant: Tenant, operation: str = "add_user", user: str = "ada") -> None:
    await audit.record(tenant.tenant_id, AuditEntry(operation, user, "192.0.2.1", 200, ""))


async def entries(
    audit: Audit, tenant: Tenant, before: int | None = None, limit: int | None = None
) -> list[ChainedEntry]:
    selected = audit.select(tenant.tenant_id, Selection(before=before, limit=limit))
    return [entry async for entry in selected if entry]


async def raised(*calls: Any) -> list[type[BaseException] | None]:
    """The exceptions of these concurrent calls."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    return [type(result) if isinstance(result, BaseException) else None for result in results]


async def test_a_tenant_change_notifies_gateways_before_and_after(tenants: Tenants, versions: RecordedVersions) -> None:
    new_tenant = make_tenant()
    await tenants.create(new_tenant)
    await tenants.edit(new_tenant.tenant_id, {"client_authentication": True})
    await tenants.delete(new_tenant.tenant_id)

    changed = replace(new_tenant, client_authentication=True)
    assert versions.seen == [None, new_tenant, new_tenant, changed, changed, None]


async def test_a_tenant_is_read_as_it_was_created(tenants: Tenants) -> None:
    new_tenant = make_tenant(
        client_authentication=True,
        allowed_networks=("10.0.0.0/8", "2001:db8::/32"),
        storage_quota=2**40,
        max_clients=3,
        version_key=VersionKey.INSTALLER,
    )
    await tenants.create(new_tenant)

    assert await tenants.find(new_tenant.tenant_id) == new_tenant
    assert new_tenant in await tenants.list()


async def test_a_tenant_id_is_unique(tenants: Tenants) -> None:
    new_tenant = make_tenant()

    errors = await raised(*(tenants.create(new_tenant) for _ in range(20)))

    assert (errors.count(None), errors.count(TenantExists)) == (1, 19)


async def test_two_concurrent_changes_are_both_stored(tenants: Tenants, tenant: Tenant) -> None:
    await asyncio.gather(
        tenants.edit(tenant.tenant_id, {"client_authentication": True}),
        tenants.edit(tenant.tenant_id, {"allowed_networks": ("10.0.0.0/8",)}),
        tenants.edit(tenant.tenant_id, {"storage_quota": 7}),
    )

    stored = await tenants.find(tenant.tenant_id)
    assert (stored.client_authentication, stored.allowed_networks, stored.storage_quota) == (True, ("10.0.0.0/8",), 7)


async def test_a_username_is_unique(users: MongoUserStore, tenant: Tenant) -> None:
    errors = await raised(*(users.add(make_user(tenant)) for _ in range(20)))

    assert (errors.count(None), errors.count(UserExists)) == (1, 19)
    assert not await users.set_password(tenant.tenant_id, "nobody", "hash")
    assert await users.list(tenant.tenant_id) == [await users.find(tenant.tenant_id, "ada")] == [make_user(tenant)]


async def test_concurrent_deletions_leave_the_last_user(users: MongoUserStore, tenant: Tenant) -> None:
    names = [f"user-{number}" for number in range(6)]
    for name in names:
        await users.add(make_user(tenant, name))

    errors = await raised(*(users.delete(tenant.tenant_id, name) for name in names))

    assert (errors.count(None), errors.count(LastAdministrator)) == (5, 1)
    assert len(await users.list(tenant.tenant_id)) == 1


async def test_entries_follow_each_other_without_gap_or_overlap(audit: Audit, tenant: Tenant) -> None:
    for number in range(7):
        await record(audit, tenant, f"operation-{number}")

    listed_operations: list[str] = []
    before = None
    while page := await entries(audit, tenant, before, limit=3):
        listed_operations += [link.entry.operation for link in page]
        before = page[-1].sequence
        await record(audit, tenant, "meanwhile")  # newer than every later page

    assert listed_operations == [f"operation-{number}" for number in reversed(range(7))]


async def test_a_deleted_tenant_is_gone_with_its_users_tokens_and_log(
    tenants: Tenants, users: MongoUserStore, tokens: Tokens, audit: Audit, tenant: Tenant
) -> None:
    await users.add(make_user(tenant))
    await add_token(tokens, tenant)
    await record(audit, tenant)

    await tenants.delete(tenant.tenant_id)

    assert (await users.list(tenant.tenant_id), await entries(audit, tenant)) == ([], [])
    assert await tokens.list(tenant.tenant_id) == []
    with pytest.raises(TenantNotFound):
        await tenants.find(tenant.tenant_id)
    with pytest.raises(TenantNotFound):
        await tenants.edit(tenant.tenant_id, {"client_authentication": True})


async def test_every_filter_begins_with_the_tenant(
    tenants: Tenants,
    users: MongoUserStore,
    tokens: Tokens,
    audit: Audit,
    tenant: Tenant,
    listener: TenantFilterCheck,
) -> None:
    other = make_tenant()
    listener.seen, listener.violations = 0, []

    await tenants.create(other)
    await tenants.find(other.tenant_id)
    await tenants.edit(other.tenant_id, {"storage_quota": 7})
    await users.add(make_user(other))
    await users.add(make_user(other, "bob"))
    await users.find(other.tenant_id, "ada")
    await users.list(other.tenant_id)
    await users.set_password(other.tenant_id, "ada", "another")
    await users.change(other.tenant_id, "bob", {"roles": [*ADMINISTRATOR]})
    await users.set_login(other.tenant_id, "Company login", with_passwords=True)
    await users.allows_passwords(other.tenant_id)
    await users.is_last_administrator(other.tenant_id, "bob")
    await users.find_subject(other.tenant_id, "https://login.example.com", "erika")
    await users.delete(other.tenant_id, "ada")
    ada, token = await add_token(tokens, other)
    await tokens.list(other.tenant_id)
    await tokens.identify(other.tenant_id, token)
    await tokens.rotate(ada, token.token_id, 1)
    await tokens.delete(other.tenant_id, token.token_id)
    await record(audit, other)
    chosen = Selection(before=9, user="ada", operations=("add_user",), since=NOW, until=NOW)
    assert [link async for link in audit.select(other.tenant_id, chosen)] == []
    await tenants.delete(other.tenant_id)

    assert listener.violations == []
    assert listener.seen == 59
    await tenants.list()
    assert listener.violations == ["find: {}"]  # No other query is for all tenants.


def test_every_index_begins_with_the_tenant() -> None:
    first = [next(iter(index.document["key"])) for indexes in SCHEMA.indexes.values() for index in indexes]

    assert set(first) == {"tenant_id"}


async def test_every_query_of_the_log_uses_an_index(database: MongoDatabase, audit: Audit, tenant: Tenant) -> None:
    await record(audit, tenant)
    for condition in ({}, {"user": "ada"}, {"operation": "add_user"}):
        cursor = database["audit_log"].find({"tenant_id": tenant.tenant_id, **condition}).sort("sequence", -1)
        plan = str((await cursor.explain())["queryPlanner"]["winningPlan"])
        assert "IXSCAN" in plan
        assert "'SORT'" not in plan


async def test_a_sign_in_is_stored_at_most_once_a_minute(users: MongoUserStore, tenant: Tenant) -> None:
    await users.add(make_user(tenant))
    stored = []
    for seconds in (0, 59, 61):
        await users.record_sign_in(tenant.tenant_id, "ada", NOW + timedelta(seconds=seconds))
        user = await users.find(tenant.tenant_id, "ada")
        assert user is not None
        stored.append(user.last_sign_in)

    assert stored == [NOW, NOW, NOW + timedelta(seconds=61)]


async def test_a_user_of_an_earlier_release_never_signed_in(
    database: MongoDatabase, users: MongoUserStore, tenant: Tenant
) -> None:
    await users.add(make_user(tenant))
    added = {"last_sign_in": "", "must_change_password": ""}
    await database["users"].update_one({"tenant_id": tenant.tenant_id, "username": "ada"}, {"$unset": added})

    assert await users.find(tenant.tenant_id, "ada") == make_user(tenant)
