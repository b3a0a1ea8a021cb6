"""Users in MongoDB."""

from collections.abc import Sequence

from motor.motor_asyncio import AsyncIOMotorClientSession
from pymongo import IndexModel
from pymongo.errors import DuplicateKeyError

from auth_service.users.model import LastUser, User, UserExists
from common.mongo import Document, Indexes, MongoDatabase

USER_INDEXES: Indexes = {"users": [IndexModel(["tenant_id", "username"], unique=True)]}


class MongoUserStore:
    """One document per user; a name is unique within the tenant."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database
        self._users = database["users"]

    async def add(self, user: User) -> None:
        try:
            await self._users.insert_one(dict(vars(user)))
        except DuplicateKeyError:
            raise UserExists(username=user.username) from None

    async def find(self, tenant_id: str, username: str) -> User | None:
        document = await self._users.find_one({"tenant_id": tenant_id, "username": username})
        return _user(document) if document else None

    async def list(self, tenant_id: str) -> Sequence[User]:
        return [_user(document) async for document in self._users.find({"tenant_id": tenant_id}).sort("username")]

    async def set_password(self, tenant_id: str, username: str, password_hash: str) -> bool:
        user = {"tenant_id": tenant_id, "username": username}
        result = await self._users.update_one(user, {"$set": {"password_hash": password_hash}})
        return result.matched_count == 1

    async def delete(self, tenant_id: str, username: str) -> bool:
        """Delete a user; False if the user does not exist. Raises LastUser for the only one."""

        async def delete_unless_last(session: AsyncIOMotorClientSession) -> bool:
            # Every deletion writes the tenant's document, so that two at once cannot both see another user left.
            tenant = {"tenant_id": tenant_id}
            await self._database["tenants"].update_one(tenant, {"$inc": {"user_deletions": 1}}, session=session)
            other = await self._users.find_one({**tenant, "username": {"$ne": username}}, session=session)
            result = await self._users.delete_one({**tenant, "username": username}, session=session)
            if result.deleted_count and not other:
                raise LastUser
            return result.deleted_count == 1

        async with await self._database.client.start_session() as session:
            return await session.with_transaction(delete_unless_last)


def _user(document: Document) -> User:
    return User(document["tenant_id"], document["username"], document["password_hash"], document["created_at"])
