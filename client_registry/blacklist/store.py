"""Blacklist entries and groups in MongoDB."""

from collections.abc import Sequence
from dataclasses import fields

from motor.motor_asyncio import AsyncIOMotorClientSession
from pymongo import ASCENDING, IndexModel
from pymongo.errors import DuplicateKeyError

from client_registry.blacklist.model import Entry, Group, GroupExists, GroupInUse, GroupNotFound
from client_registry.clients.model import ClientNotFound
from common.mongo import Document, Indexes, MongoDatabase

BLACKLIST_INDEXES: Indexes = {
    "entries": [
        IndexModel(["tenant_id", "entry_id"], unique=True),
        IndexModel(["tenant_id", "client_id"]),
        IndexModel(["tenant_id", "group_id"]),
    ],
    "groups": [IndexModel(["tenant_id", name], unique=True) for name in ("group_id", "name_key")],
}


class MongoBlacklistStore:
    """One document per entry, one per group."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database
        self._entries = database["entries"]
        self._groups = database["groups"]

    async def entries(self, tenant_id: str) -> Sequence[Entry]:
        cursor = self._entries.find({"tenant_id": tenant_id}).sort([("created_at", ASCENDING), ("_id", ASCENDING)])
        return [_entry(document) async for document in cursor]

    async def entries_for(self, tenant_id: str, client_id: str) -> Sequence[Entry]:
        """The entries for this client and those for all clients."""
        cursor = self._entries.find({"tenant_id": tenant_id, "client_id": {"$in": [None, client_id]}})
        return [_entry(document) async for document in cursor]

    async def add_entry(self, tenant_id: str, entry: Entry) -> None:
        """Raises ClientNotFound or GroupNotFound if the entry names one that does not exist."""

        async def add_with_references(session: AsyncIOMotorClientSession) -> None:
            if entry.client_id and not await self._lock("clients", tenant_id, session, client_id=entry.client_id):
                raise ClientNotFound
            if entry.group_id and not await self._lock("groups", tenant_id, session, group_id=entry.group_id):
                raise GroupNotFound
            await self._entries.insert_one({"tenant_id": tenant_id, **vars(entry)}, session=session)

        async with await self._database.client.start_session() as session:
            await session.with_transaction(add_with_references)

    async def delete_entry(self, tenant_id: str, entry_id: str) -> bool:
        result = await self._entries.delete_one({"tenant_id": tenant_id, "entry_id": entry_id})
        return result.deleted_count == 1

    async def groups(self, tenant_id: str) -> Sequence[Group]:
        cursor = self._groups.find({"tenant_id": tenant_id}).sort("name_key", ASCENDING)
        return [_group(document) async for document in cursor]

    async def groups_of(self, tenant_id: str, group_ids: Sequence[str]) -> Sequence[Group]:
        cursor = self._groups.find({"tenant_id": tenant_id, "group_id": {"$in": list(group_ids)}})
        return [_group(document) async for document in cursor]

    async def add_group(self, tenant_id: str, group: Group) -> None:
        """Raises GroupExists for a duplicate name."""
        try:
            await self._groups.insert_one({"tenant_id": tenant_id, **vars(group), "name_key": group.name.casefold()})
        except DuplicateKeyError:
            raise GroupExists(name=group.name) from None

    async def delete_group(self, tenant_id: str, group_id: str) -> bool:
        """Delete a group; False if it does not exist. Raises GroupInUse while an entry names it."""
        group = {"tenant_id": tenant_id, "group_id": group_id}

        async def delete_if_unused(session: AsyncIOMotorClientSession) -> bool:
            deleted = await self._groups.delete_one(group, session=session)
            if deleted.deleted_count and await self._entries.find_one(group, session=session):
                raise GroupInUse
            return deleted.deleted_count == 1

        async with await self._database.client.start_session() as session:
            return await session.with_transaction(delete_if_unused)

    async def _lock(self, name: str, tenant_id: str, session: AsyncIOMotorClientSession, **key: str) -> bool:
        """Lock a document until the transaction ends, by writing to it; False if there is none."""
        document = {"tenant_id": tenant_id, **key}
        result = await self._database[name].update_one(document, {"$inc": {"entries_added": 1}}, session=session)
        return result.matched_count == 1


def _entry(document: Document) -> Entry:
    values = {field.name: document[field.name] for field in fields(Entry)}
    return Entry(**{**values, "package_ids": tuple(document["package_ids"])})


def _group(document: Document) -> Group:
    return Group(document["group_id"], document["name"], tuple(document["package_ids"]), document["created_at"])
