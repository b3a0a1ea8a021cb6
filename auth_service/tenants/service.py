"""Tenants and their settings."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from auth_service.outgoing.catalog_service import CatalogService
from auth_service.tenants.model import TenantNotFound, WouldLockOutCaller
from auth_service.tenants.store import MongoTenantStore
from common.auth.entra_app import EntraApp
from common.auth.internal_tokens import Caller
from common.caching import ResponseCache
from common.errors import InvalidField
from common.redis import TenantVersions
from common.tenants import Address, RingRule, Tenant, contains, is_tenant_id

MAX_AGE = 3.0  # seconds: the longest delay of a change whose new version did not reach Redis
MAX_TENANTS = 10_000
Changes = Mapping[str, tuple[str, str]]  # old and new value, by the setting's name


def to_audit_text(value: object) -> str:
    """A setting's value for the audit log, never shortened: a missing address would be a hidden one."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        if any(isinstance(item, RingRule) for item in value):
            return orjson.dumps([rule.to_document() for rule in value]).decode()
        return ",".join(value)
    if isinstance(value, EntraApp):
        return orjson.dumps(value).decode()
    return "none" if value is None else str(value).lower()


class Tenants:
    """Creates, finds and changes tenants."""

    def __init__(self, store: MongoTenantStore, versions: TenantVersions) -> None:
        self._store = store
        self._versions = versions
        self._cache: ResponseCache[str, Tenant] = ResponseCache(max_age=MAX_AGE, limit=MAX_TENANTS)

    async def create(self, tenant: Tenant) -> None:
        """Add a tenant. Raises InvalidField for an invalid id, TenantExists for a duplicate one."""
        if not is_tenant_id(tenant.tenant_id):
            raise InvalidField("tenant_id", "must be 1 to 63 of a-z, 0-9, _ and -, and not a reserved word")
        async with self._versions.invalidate_during(tenant.tenant_id):
            await self._store.add(tenant)

    async def find(self, tenant_id: str) -> Tenant:
        """Raises TenantNotFound."""
        tenant = await self._store.find(tenant_id)
        if tenant is None:
            raise TenantNotFound(tenant_id=tenant_id)
        return tenant

    async def find_at(self, tenant_id: str, version: str | None) -> Tenant:
        """The tenant at a version, cached; None if nothing may be cached. Raises TenantNotFound."""
        return await self._cache.get_or_fetch(tenant_id, version, partial(self.find, tenant_id))

    async def list(self) -> Sequence[Tenant]:
        """Every tenant, by id."""
        return await self._store.list()

    async def edit(self, tenant_id: str, changes: dict[str, object]) -> Changes:
        """Change settings, by the names of `Tenant`'s fields; return old and new values. Raises TenantNotFound."""
        async with self._versions.invalidate_during(tenant_id):
            before = await self._store.change(tenant_id, changes) if changes else await self._store.find(tenant_id)
        if before is None:
            raise TenantNotFound(tenant_id=tenant_id)
        return {name: (to_audit_text(getattr(before, name)), to_audit_text(value)) for name, value in changes.items()}

    async def delete(self, tenant_id: str) -> None:
        """Delete the tenant, its users, tokens, company login and audit log; other services delete their own data."""
        async with self._versions.invalidate_during(tenant_id):
            await self._store.delete(tenant_id)


class SettingsEditor:
    """Changes settings here, and the policy for releases in catalog_service first. Both services store the policy."""

    def __init__(self, tenants: Tenants, catalog_service: CatalogService) -> None:
        self._tenants = tenants
        self._catalog_service = catalog_service

    async def edit(self, caller: Caller, settings: dict[str, object], policy: Mapping[str, str]) -> Changes:
        """Change settings, by the names of `Tenant`'s fields, and the `policy`, as the form has it.

        Return old and new values. After any error, repeat the call. Raises TenantNotFound, WouldLockOutCaller, or what
        `CatalogService` raises.
        """
        check_networks(caller.address, settings)
        if not policy:
            return await self._tenants.edit(caller.tenant_id, settings)
        await self._tenants.find(caller.tenant_id)
        stored = await self._catalog_service.edit_release_policy(caller, policy)
        changes = await self._tenants.edit(caller.tenant_id, {**settings, **stored})
        # Concurrent edits may arrive here in another order than there. The last one to store compares both.
        while (latest := await self._catalog_service.edit_release_policy(caller, {})) != stored:
            stored = latest
            await self._tenants.edit(caller.tenant_id, stored)
        # An edit of the rings can change the gates.
        sent = settings.keys() | policy.keys()
        return {name: values for name, values in changes.items() if name in sent or values[0] != values[1]}


def check_networks(caller: Address, changes: Mapping[str, Any]) -> None:
    """Raise WouldLockOutCaller if the changed networks do not contain the administrator's own address."""
    networks = changes.get("allowed_networks")
    if networks and not contains(networks, caller):
        raise WouldLockOutCaller(str(caller))
