"""Tenants and users in MongoDB."""

from collections.abc import Sequence

from motor.motor_asyncio import AsyncIOMotorClientSession
from pymongo import ASCENDING, IndexModel
from pymongo.errors import DuplicateKeyError

from auth_service.audit.store import AUDIT_INDEXES, COLLECTIONS
from auth_service.model import LastUser, TenantExists, User, UserExists
from common.mongo import Document, Indexes, MongoDatabase
from common.tenants import Tenant, VersionKey

INDEXES: Indexes = {
    "tenants": [IndexModel([("tenant_id", ASCENDING)], unique=True)],
    "users": [IndexModel([("tenant_id", ASCENDING), ("username", ASCENDING)], unique=True)],
    **AUDIT_INDEXES,
}


class MongoTenantStore:
    """One document a tenant."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database
        self._tenants = database["tenants"]

    async def add(self, tenant: Tenant) -> None:
        try:
            await self._tenants.insert_one(_tenant_document(tenant))
        except DuplicateKeyError:
            raise TenantExists(tenant.tenant_id) from None

    async def find(self, tenant_id: str) -> Tenant | None:
        document = await self._tenants.find_one({"tenant_id": tenant_id})
        return _tenant(document) if document else None

    async def list(self) -> Sequence[Tenant]:
        return [_tenant(document) async for document in self._tenants.find({}).sort("tenant_id", ASCENDING)]

    async def change(self, tenant_id: str, changes: dict[str, object]) -> Tenant | None:
        document = await self._tenants.find_one_and_update({"tenant_id": tenant_id}, {"$set": changes})
        return _tenant(document) if document else None

    async def delete(self, tenant_id: str) -> None:
        await self._tenants.delete_one({"tenant_id": tenant_id})
        for name in ("users", *COLLECTIONS):
            await self._database[name].delete_many({"tenant_id": tenant_id})


class MongoUserStore:
    """One document a user; their names are unique within the tenant."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database
        self._users = database["users"]

    async def add(self, user: User) -> None:
        try:
            await self._users.insert_one(
                {
                    "tenant_id": user.tenant_id,
                    "username": user.username,
                    "password_hash": user.password_hash,
                    "created_at": user.created_at,
                }
            )
        except DuplicateKeyError:
            raise UserExists(user.username) from None

    async def find(self, tenant_id: str, username: str) -> User | None:
        document = await self._users.find_one({"tenant_id": tenant_id, "username": username})
        return _user(document) if document else None

    async def list(self, tenant_id: str) -> Sequence[User]:
        return [_user(found) async for found in self._users.find({"tenant_id": tenant_id}).sort("username", ASCENDING)]

    async def set_password(self, tenant_id: str, username: str, password_hash: str) -> bool:
        result = await self._users.update_one(
            {"tenant_id": tenant_id, "username": username}, {"$set": {"password_hash": password_hash}}
        )
        return result.matched_count == 1

    async def delete(self, tenant_id: str, username: str) -> bool:
        """Delete a user, whether there was one. Raises LastUser for the only one."""

        async def alone(session: AsyncIOMotorClientSession) -> bool:
            # Every deletion writes the tenant's document, so that two at once cannot both see another user left.
            await self._database["tenants"].update_one(
                {"tenant_id": tenant_id}, {"$inc": {"user_deletions": 1}}, session=session
            )
            others = await self._users.find_one(
                {"tenant_id": tenant_id, "username": {"$ne": username}}, session=session
            )
            found = await self._users.find_one_and_delete(
                {"tenant_id": tenant_id, "username": username}, session=session
            )
            if found and not others:
                raise LastUser
            return found is not None

        async with await self._database.client.start_session() as session:
            return await session.with_transaction(alone)


def _tenant_document(tenant: Tenant) -> Document:
    return {
        "tenant_id": tenant.tenant_id,
        "client_authentication": tenant.client_authentication,
        "allowed_networks": list(tenant.allowed_networks),
        "storage_quota": tenant.storage_quota,
        "max_clients": tenant.max_clients,
        "version_key": tenant.version_key,
        "strict_installers": tenant.strict_installers,
        "source_agreements": tenant.source_agreements,
    }


def _tenant(document: Document) -> Tenant:
    return Tenant(
        tenant_id=document["tenant_id"],
        client_authentication=document["client_authentication"],
        allowed_networks=tuple(document["allowed_networks"]),
        storage_quota=document["storage_quota"],
        max_clients=document["max_clients"],
        version_key=VersionKey(document["version_key"]),
        strict_installers=document.get("strict_installers", False),  # Older tenants do not say.
        source_agreements=document.get("source_agreements", ""),  # Tenants from before there were any have none.
    )


def _user(document: Document) -> User:
    return User(document["tenant_id"], document["username"], document["password_hash"], document["created_at"])
