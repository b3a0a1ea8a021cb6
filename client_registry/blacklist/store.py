"""Blacklist entries and groups in MongoDB."""

from collections.abc import Sequence

from motor.motor_asyncio import AsyncIOMotorClientSession
from pymongo import ASCENDING, IndexModel
from pymongo.errors import DuplicateKeyError

from client_registry.model import ClientNotFound, Entry, Group, GroupExists, GroupInUse, GroupNotFound
from common.mongo import Document, Indexes, MongoDatabase

INDEXES: Indexes = {
    "entries": [
        IndexModel([("tenant_id", ASCENDING), ("entry_id", ASCENDING)], unique=True),
        IndexModel([("tenant_id", ASCENDING), ("client_id", ASCENDING)]),
        IndexModel([("tenant_id", ASCENDING), ("group_id", ASCENDING)]),
    ],
    "groups": [
        IndexModel([("tenant_id", ASCENDING), ("group_id", ASCENDING)], unique=True),
        IndexModel([("tenant_id", ASCENDING), ("name_key", ASCENDING)], unique=True),
    ],
}


class MongoBlacklistStore:
    """One document an entry, one a group."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database
        self._entries = database["entries"]
        self._groups = database["groups"]

    async def entries(self, tenant_id: str) -> Sequence[Entry]:
        found = self._entries.find({"tenant_id": tenant_id}).sort([("created_at", ASCENDING), ("_id", ASCENDING)])
        return [_entry(document) async for document in found]

    async def entries_for(self, tenant_id: str, client_id: str) -> Sequence[Entry]:
        found = self._entries.find({"tenant_id": tenant_id, "client_id": {"$in": [None, client_id]}})
        return [_entry(document) async for document in found]

    async def add_entry(self, tenant_id: str, entry: Entry) -> None:
        async def with_what_it_names(session: AsyncIOMotorClientSession) -> None:
            if entry.client_id and not await self._hold("clients", tenant_id, session, client_id=entry.client_id):
                raise ClientNotFound
            if entry.group_id and not await self._hold("groups", tenant_id, session, group_id=entry.group_id):
                raise GroupNotFound
            await self._entries.insert_one(
                {
                    "tenant_id": tenant_id,
                    "entry_id": entry.entry_id,
                    "client_id": entry.client_id,
                    "network": entry.network,
                    "package_ids": list(entry.package_ids),
                    "group_id": entry.group_id,
                    "created_at": entry.created_at,
                },
                session=session,
            )

        async with await self._database.client.start_session() as session:
            await session.with_transaction(with_what_it_names)

    async def delete_entry(self, tenant_id: str, entry_id: str) -> bool:
        result = await self._entries.delete_one({"tenant_id": tenant_id, "entry_id": entry_id})
        return result.deleted_count == 1

    async def groups(self, tenant_id: str) -> Sequence[Group]:
        found = self._groups.find({"tenant_id": tenant_id}).sort("name_key", ASCENDING)
        return [_group(document) async for document in found]

    async def groups_of(self, tenant_id: str, group_ids: Sequence[str]) -> Sequence[Group]:
        found = self._groups.find({"tenant_id": tenant_id, "group_id": {"$in": list(group_ids)}})
        return [_group(document) async for document in found]

    async def add_group(self, tenant_id: str, group: Group) -> None:
        try:
            await self._groups.insert_one(
                {
                    "tenant_id": tenant_id,
                    "group_id": group.group_id,
                    "name": group.name,
                    "name_key": group.name.casefold(),
                    "package_ids": list(group.package_ids),
                    "created_at": group.created_at,
                }
            )
        except DuplicateKeyError:
            raise GroupExists(group.name) from None

    async def delete_group(self, tenant_id: str, group_id: str) -> bool:
        async def unused(session: AsyncIOMotorClientSession) -> bool:
            wanted = {"tenant_id": tenant_id, "group_id": group_id}
            deleted = await self._groups.delete_one(wanted, session=session)
            if deleted.deleted_count and await self._entries.find_one(wanted, session=session):
                raise GroupInUse
            return deleted.deleted_count == 1

        async with await self._database.client.start_session() as session:
            return await session.with_transaction(unused)

    async def _hold(self, name: str, tenant_id: str, session: AsyncIOMotorClientSession, **wanted: str) -> bool:
        """Whether there is such a document; it stays until the transaction ends, because it is written to."""
        result = await self._database[name].update_one(
            {"tenant_id": tenant_id, **wanted}, {"$inc": {"entries_added": 1}}, session=session
        )
        return result.matched_count == 1


def _entry(document: Document) -> Entry:
    return Entry(
        entry_id=document["entry_id"],
        client_id=document["client_id"],
        network=document["network"],
        package_ids=tuple(document["package_ids"]),
        group_id=document["group_id"],
        created_at=document["created_at"],
    )


def _group(document: Document) -> Group:
    return Group(document["group_id"], document["name"], tuple(document["package_ids"]), document["created_at"])
