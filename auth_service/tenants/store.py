"""The errors of tenants, and tenants in MongoDB; `common.tenants` has the tenant itself."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pymongo import IndexModel
from pymongo.errors import DuplicateKeyError

from common.errors import Conflict, InvalidField, NotFound
from common.mongo import Indexes, MongoDatabase
from common.tenants import EntraApp, Site, Tenant


class TenantNotFound(NotFound):
    code = "tenant_not_found"
    text = "There is no tenant {tenant_id!r}."


class TenantExists(Conflict):
    code = "tenant_exists"
    text = "There is a tenant {tenant_id!r} already."


class WouldLockOutCaller(InvalidField):
    code = "shuts_out_caller"

    def __init__(self, ip: str) -> None:
        super().__init__("allowed_networks", f"this list would shut you out: {ip} is not on it")


TENANT_INDEXES: Indexes = {"tenants": [IndexModel(["tenant_id"], unique=True)]}


class MongoTenantStore:
    """One document per tenant."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database
        self._tenants = database["tenants"]

    async def add(self, tenant: Tenant) -> None:
        try:
            await self._tenants.insert_one(tenant.to_document())
        except DuplicateKeyError:
            raise TenantExists(tenant_id=tenant.tenant_id) from None

    async def find(self, tenant_id: str) -> Tenant | None:
        document = await self._tenants.find_one({"tenant_id": tenant_id})
        return Tenant.from_document(document) if document else None

    async def list(self) -> Sequence[Tenant]:
        return [Tenant.from_document(document) async for document in self._tenants.find({}).sort("tenant_id")]

    async def change(self, tenant_id: str, changes: dict[str, object]) -> Tenant | None:
        """Change settings and return the tenant as it was before; None if it does not exist."""
        values = {name: _to_bson(value) for name, value in changes.items()}
        document = await self._tenants.find_one_and_update({"tenant_id": tenant_id}, {"$set": values})
        return Tenant.from_document(document) if document else None

    async def delete(self, tenant_id: str) -> None:
        await self._tenants.delete_one({"tenant_id": tenant_id})
        for name in ("users", "tokens", "providers", "audit_log", "audit_heads"):
            await self._database[name].delete_many({"tenant_id": tenant_id})


def _to_bson(value: object) -> Any:
    if isinstance(value, EntraApp | Site):
        return asdict(value)
    return list(map(_to_bson, value)) if isinstance(value, tuple) else value
