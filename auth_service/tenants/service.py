"""Tenants and their settings."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Protocol

from auth_service.model import TenantNotFound, WouldLockOutCaller
from common.errors import InvalidField
from common.tenants import Address, Tenant, VersionKey, is_tenant_id

Changes = Mapping[str, tuple[str, str]]  # before and after, by the setting's name


class TenantStore(Protocol):
    """Where tenants are kept; the store decides that an id is unique."""

    async def add(self, tenant: Tenant) -> None: ...

    async def find(self, tenant_id: str) -> Tenant | None: ...

    async def list(self) -> Sequence[Tenant]: ...

    async def change(self, tenant_id: str, changes: dict[str, object]) -> Tenant | None:
        """Set some settings and give the tenant as it was before, or None where there is no such tenant."""

    async def delete(self, tenant_id: str) -> None: ...


class CacheInvalidation(Protocol):
    def invalidate_during(self, tenant_id: str) -> AbstractAsyncContextManager[None]:
        """To be held around a change, so that gateways know of it; see `common.caching.tenant_version`."""


def in_words(value: object) -> str:
    """A setting's value in the words of the audit log, whole: an address left out would be one hidden."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return ",".join(value)
    return "none" if value is None else str(value).lower()


class Tenants:
    """Creates, finds and changes tenants."""

    def __init__(self, store: TenantStore, versions: CacheInvalidation) -> None:
        self._store = store
        self._versions = versions

    async def create(self, tenant: Tenant) -> None:
        """Add a tenant. Raises InvalidField for an id that cannot be one, TenantExists for one there is."""
        if not is_tenant_id(tenant.tenant_id):
            raise InvalidField("tenant_id", "must be 1 to 63 of a-z, 0-9, _ and -, and not a reserved word")
        async with self._versions.invalidate_during(tenant.tenant_id):
            await self._store.add(tenant)

    async def find(self, tenant_id: str) -> Tenant:
        """Raises TenantNotFound."""
        tenant = await self._store.find(tenant_id)
        if tenant is None:
            raise TenantNotFound(tenant_id)
        return tenant

    async def list(self) -> Sequence[Tenant]:
        """Every tenant, by id."""
        return await self._store.list()

    async def edit(self, tenant_id: str, changes: dict[str, object]) -> Changes:
        """Change settings, by the names of `Tenant`'s fields; what each was and is now. Raises TenantNotFound."""
        async with self._versions.invalidate_during(tenant_id):
            before = await self._store.change(tenant_id, changes) if changes else await self._store.find(tenant_id)
        if before is None:
            raise TenantNotFound(tenant_id)
        return {name: (in_words(getattr(before, name)), in_words(value)) for name, value in changes.items()}

    async def delete(self, tenant_id: str) -> None:
        """Remove the tenant, its users and its audit log. Other services' data is theirs to remove."""
        async with self._versions.invalidate_during(tenant_id):
            await self._store.delete(tenant_id)


def administrators_changes(
    caller: Address,
    *,
    client_authentication: bool | None,
    allowed_networks: tuple[str, ...] | None,
    version_key: VersionKey | None,
    strict_installers: bool | None,
    source_agreements: str | None,
) -> dict[str, object]:
    """The settings an administrator wants changed; None leaves one as it is.

    Raises:
        ShutsOutCaller: the networks would not let the caller in again.
    """
    if allowed_networks is not None and not replace(Tenant(""), allowed_networks=allowed_networks).allows(caller):
        raise WouldLockOutCaller(str(caller))
    wanted = {
        "client_authentication": client_authentication,
        "allowed_networks": allowed_networks,
        "version_key": version_key,
        "strict_installers": strict_installers,
        "source_agreements": source_agreements,
    }
    return {name: value for name, value in wanted.items() if value is not None}
