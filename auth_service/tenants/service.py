"""Tenants and their settings."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from auth_service.tenants.store import MongoTenantStore, TenantNotFound, WouldLockOutCaller
from common.errors import InvalidField
from common.redis import TenantVersions
from common.tenants import Address, EntraApp, Site, Tenant, contains, is_tenant_id

Changes = Mapping[str, tuple[str, str]]  # old and new value, by the setting's name


def to_audit_text(value: object) -> str:
    """A setting's value for the audit log, never shortened: a missing address would be a hidden one."""
    if isinstance(value, str):
        return value
    if isinstance(value, EntraApp) or (isinstance(value, tuple) and value and isinstance(value[0], Site)):
        return orjson.dumps(value).decode()
    if isinstance(value, tuple):
        return ",".join(value)
    return "none" if value is None else str(value).lower()


class Tenants:
    """Creates, finds and changes tenants."""

    def __init__(self, store: MongoTenantStore, versions: TenantVersions) -> None:
        self._store = store
        self._versions = versions

    async def create(self, tenant: Tenant) -> None:
        """Add a tenant. Raises InvalidField for an invalid id, TenantExists for a duplicate one."""
        if not is_tenant_id(tenant.tenant_id):
            raise InvalidField("tenant_id", "must be 1 to 63 of a-z, 0-9, _ and -, and not a reserved word")
        async with self._versions.invalidate_access_during(tenant.tenant_id):
            await self._store.add(tenant)

    async def find(self, tenant_id: str) -> Tenant:
        """Raises TenantNotFound."""
        tenant = await self._store.find(tenant_id)
        if tenant is None:
            raise TenantNotFound(tenant_id=tenant_id)
        return tenant

    async def list(self) -> Sequence[Tenant]:
        """Every tenant, by id."""
        return await self._store.list()

    async def edit(self, tenant_id: str, changes: dict[str, object]) -> Changes:
        """Change settings, by the names of `Tenant`'s fields; return old and new values. Raises TenantNotFound."""
        async with self._versions.invalidate_access_during(tenant_id):
            before = await self._store.change(tenant_id, changes) if changes else await self._store.find(tenant_id)
        if before is None:
            raise TenantNotFound(tenant_id=tenant_id)
        return {name: (to_audit_text(getattr(before, name)), to_audit_text(value)) for name, value in changes.items()}

    async def delete(self, tenant_id: str) -> None:
        """Delete the tenant, its users, tokens, company login and audit log; other services delete their own data."""
        async with self._versions.invalidate_access_during(tenant_id):
            await self._store.delete(tenant_id)


def check_networks(caller: Address, changes: Mapping[str, Any]) -> None:
    """Raise WouldLockOutCaller if the changed networks do not contain the administrator's own address."""
    networks = changes.get("allowed_networks")
    if networks and not contains(networks, caller):
        raise WouldLockOutCaller(str(caller))
