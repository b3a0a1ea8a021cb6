"""Changes of settings by administrators. catalog_service checks the policy for releases, and both services store it."""

from collections.abc import Mapping

from auth_service.outgoing.catalog_service import CatalogService
from auth_service.tenants.service import Changes, Tenants, check_networks
from common.auth.internal_tokens import Caller


class SettingsEditor:
    """Changes settings here, and the policy for releases in catalog_service first."""

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
