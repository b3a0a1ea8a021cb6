"""Tenants and their users, directly in the stores, and the audit log in which each command is recorded."""

import asyncio
import getpass
import json
import os
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from uuid import uuid4

from auth_service.audit.service import Audit
from auth_service.audit.store import OPERATORS, AuditEntry, AuditSigner, MongoAuditStore, Selection
from auth_service.oidc.client import ProviderClient
from auth_service.oidc.service import Providers
from auth_service.oidc.store import MongoProviderStore
from auth_service.tenants.service import Changes, Tenants
from auth_service.tenants.store import MongoTenantStore, TenantExists
from auth_service.users.service import Passwords, Users
from auth_service.users.store import MongoUserStore
from auth_service.users.throttle_store import RedisFailureCounts, RedisKnownNetworks, Throttle
from auth_service.users.token_store import Tokens
from catalog_service.store import MongoCatalogStore
from client_registry.clients.store import MongoClientStore
from common.auth.sessions import Sessions
from common.auth.signing import Keys
from common.errors import InvalidField, Problem
from common.mongo import MongoError
from common.redis import TenantVersions, open_redis
from common.tenants import Tenant, contains, is_tenant_id
from deploy.local.folder import Addresses, generated_secret
from deploy.operator.stores import StoreAddresses, open_database, open_storage
from upload_service.downloads.store import MongoDownloadStore
from upload_service.model import StorageKind
from upload_service.quota.store import MongoQuotaStore
from upload_service.storage.store import MongoMoveStore
from upload_service.uploads.claims import forget_tenant as forget_installers
from upload_service.uploads.store import MongoUploadStore

CACHES_EXPIRED = 5  # seconds until no gateway has a deleted tenant in its cache
RECENT_ENTRIES = 100
OPERATOR_PREFIX = "operator/"  # before a name; the slash tells it from an administrator's
ADMINISTRATOR = "admin"


@dataclass(frozen=True)
class Operator:
    """auth_service's tenants, users, API tokens, identity providers, sessions, and addresses of earlier sign-ins."""

    tenants: Tenants
    users: Users
    tokens: Tokens
    providers: Providers
    sessions: Sessions
    known_networks: RedisKnownNetworks


@asynccontextmanager
async def open_operator(addresses: Addresses) -> AsyncIterator[Operator]:
    """Open the stores of auth_service."""
    async with open_database(addresses.mongo_url, "auth") as database, open_redis(addresses.redis_url) as redis:
        # These sessions are only ended, and none is signed, so the key does not matter.
        sessions = Sessions(redis, keys=Keys(secrets.token_urlsafe(48)), lifetime=1, idle=1)
        known_networks = RedisKnownNetworks(redis)
        throttle = Throttle(RedisFailureCounts(redis), known_networks)
        versions = TenantVersions(redis)
        users = Users(MongoUserStore(database), Passwords(), sessions, throttle, versions)
        tenants = Tenants(MongoTenantStore(database), versions)
        tokens = Tokens(database, versions)
        providers = Providers(MongoProviderStore(database), ProviderClient(), users)
        yield Operator(tenants, users, tokens, providers, sessions, known_networks)


def locked_out(networks: tuple[str, ...], callers: Iterable[str]) -> list[str]:
    """The addresses that these allowed networks exclude. Texts that are no addresses are ignored."""
    excluded = []
    for caller in sorted(callers):
        with suppress(ValueError):
            if networks and not contains(networks, ip_address(caller)):
                excluded.append(caller)
    return excluded


async def delete_tenant(addresses: Addresses, installers: Path | None, tenant_id: str) -> bool:
    """Delete a tenant with its data in every service; whether it existed.

    A second call deletes what an interrupted one has left, even if the tenant is gone. Raises InvalidField for the id,
    and BadSetting if the storage of some installers is unknown.
    """
    if not is_tenant_id(tenant_id):
        raise InvalidField("tenant_id", "is not a valid tenant id")
    storage = open_storage(installers)
    async with open_database(addresses.mongo_url, "upload") as upload:
        if await MongoMoveStore(upload).has_any(tenant_id, StorageKind.S3):
            storage.require(StorageKind.S3)
    async with open_operator(addresses) as operator:
        known = tenant_id in {tenant.tenant_id for tenant in await operator.tenants.list()}
        await operator.tenants.delete(tenant_id)
        # Until the caches of the gateways expire, requests of the tenant, logins too, could add data.
        await asyncio.sleep(CACHES_EXPIRED)
        await operator.sessions.close_tenant(tenant_id)
        await operator.known_networks.forget_tenant(tenant_id)
        await operator.tenants.delete(tenant_id)  # Removes the audit entries of sign-ins in the last seconds.
    async with (
        open_database(addresses.mongo_url, "catalog") as catalog,
        open_database(addresses.mongo_url, "clients") as clients,
        open_database(addresses.mongo_url, "upload") as upload,
    ):
        await MongoCatalogStore(catalog, uploads_age=0).forget_tenant(tenant_id)
        await MongoClientStore(clients).forget_tenant(tenant_id)
        stores = (MongoUploadStore(upload), MongoQuotaStore(upload), MongoDownloadStore(upload))
        await forget_installers(tenant_id, storage.backends, *stores)
    return known


class NotRecorded(Exception):
    """The audit log rejected or lost the entry of a completed action; the text is one line and contains the entry."""


@dataclass(frozen=True)
class OperatorAudit:
    """The logs of all tenants and of the operators."""

    audit: Audit
    store: MongoAuditStore
    signer: AuditSigner

    async def add(self, tenant_id: str, operation: str, changes: Changes | None = None, /, **target: str) -> None:
        """Record an action of the operator, before or after it. Raises NotRecorded."""
        # "pkgrepo" is recorded instead of an administrator's address.
        entry = AuditEntry(operation, operator_name(), "pkgrepo", 200, uuid4().hex, target, changes or {})
        try:
            await self.audit.record(tenant_id, entry)
        except (MongoError, Problem):
            text = json.dumps({"tenant_id": tenant_id, **vars(entry)}, default=str)
            raise NotRecorded(f"the audit log does not answer and lacks this entry: {text}") from None

    async def recent_addresses(self, tenant_id: str) -> set[str]:
        """The addresses of the administrators in the newest entries of a tenant's log."""
        entries = self.audit.select(tenant_id, Selection(limit=RECENT_ENTRIES))
        return {entry.entry.ip async for entry in entries if entry}

    async def add_deletion(self, tenant_id: str) -> None:
        """Record the deletion of a tenant in the operators' log, with the head of the log that is deleted."""
        head = await self.store.newest(tenant_id)
        await self.add(OPERATORS, "tenant_delete", tenant_id=tenant_id, audit_head=str(head))


@asynccontextmanager
async def open_operator_audit(where: StoreAddresses) -> AsyncIterator[OperatorAudit]:
    """Open the audit log. Raises BadSetting if its key is unknown."""
    signer = AuditSigner(where.require_audit_key().get_secret_value())
    async with open_database(where.addresses.mongo_url, "auth") as database:
        store = MongoAuditStore(database)
        yield OperatorAudit(Audit(store, signer), store, signer)


def operator_name() -> str:
    """The user of this machine."""
    try:
        return f"{OPERATOR_PREFIX}{getpass.getuser()}"
    except (KeyError, OSError):  # a user without a name, as in a container
        return f"{OPERATOR_PREFIX}{os.getuid()}"


@dataclass(frozen=True)
class RecordedOperator(Operator):
    """An operator whose actions the audit log records."""

    audit: OperatorAudit


@asynccontextmanager
async def open_recorded_operator(where: StoreAddresses) -> AsyncIterator[RecordedOperator]:
    """Open the stores of auth_service and the audit log. Raises BadSetting if its key is unknown."""
    async with open_operator(where.addresses) as operator, open_operator_audit(where) as audit:
        yield RecordedOperator(**vars(operator), audit=audit)


async def create_first_tenant(where: StoreAddresses, tenant_id: str, password_file: Path) -> str | None:
    """Create the tenant and its administrator if they do not exist; the password if the administrator is new.

    The password is read from the file, or generated and written to it. A tenant without users, of an interrupted start,
    gets its administrator.
    """
    async with open_recorded_operator(where) as operator:
        try:
            await operator.tenants.create(Tenant(tenant_id))
            await operator.audit.add(tenant_id, "tenant_create")
        except TenantExists:
            if await operator.users.list(tenant_id):
                return None
        password = generated_secret(password_file, 18).read_text(encoding="utf-8").strip()
        await operator.users.create(tenant_id, ADMINISTRATOR, password)
        await operator.audit.add(tenant_id, "user_create", username=ADMINISTRATOR)
        return password
