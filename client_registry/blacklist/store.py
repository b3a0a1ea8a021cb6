"""Blacklist entries and groups of packages in MongoDB, and the packages that they hide from a caller."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from motor.motor_asyncio import AsyncIOMotorClientSession
from pymongo import ASCENDING, IndexModel
from pymongo.errors import DuplicateKeyError

from client_registry.clients.store import ClientNotFound, uuid_text
from common.auth.internal_tokens import Caller, Kind
from common.errors import Conflict, NotFound
from common.mongo import Document, Indexes, MongoDatabase
from common.tenants import Address, contains


@dataclass(frozen=True)
class Entry:
    """Hides packages, listed or in a group, from callers that match `client_id` and `network`; None matches all."""

    entry_id: str
    client_id: str | None
    network: str | None
    package_ids: tuple[str, ...]
    group_id: str | None
    created_at: datetime

    def applies_to(self, client_id: str, address: Address) -> bool:
        return self.client_id in {None, client_id} and (self.network is None or contains((self.network,), address))


@dataclass(frozen=True)
class Group:
    """A named list of packages that entries share."""

    group_id: str
    name: str
    package_ids: tuple[str, ...]
    created_at: datetime


class EntryNotFound(NotFound):
    code = "entry_not_found"
    text = "There is no blacklist entry with this id."


class GroupNotFound(NotFound):
    code = "group_not_found"
    text = "There is no blacklist group with this id."


class GroupExists(Conflict):
    code = "group_exists"
    text = "There is a blacklist group {name!r} already."


class GroupInUse(Conflict):
    code = "group_in_use"
    text = "Blacklist entries use this group; delete them first."


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
        """A tenant's entries, oldest first."""
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

    async def delete_entry(self, tenant_id: str, entry_id: str) -> None:
        """Raises EntryNotFound."""
        result = await self._entries.delete_one({"tenant_id": tenant_id, "entry_id": uuid_text(entry_id) or ""})
        if not result.deleted_count:
            raise EntryNotFound

    async def groups(self, tenant_id: str) -> Sequence[Group]:
        """A tenant's groups, by name."""
        cursor = self._groups.find({"tenant_id": tenant_id}).sort("name_key", ASCENDING)
        return [_group(document) async for document in cursor]

    async def groups_of(self, tenant_id: str, group_ids: Sequence[str]) -> Sequence[Group]:
        cursor = self._groups.find({"tenant_id": tenant_id, "group_id": {"$in": list(group_ids)}})
        return [_group(document) async for document in cursor]

    async def add_group(self, tenant_id: str, group: Group) -> None:
        """Raises GroupExists for a duplicate name, letter case aside."""
        try:
            await self._groups.insert_one({"tenant_id": tenant_id, **vars(group), "name_key": group.name.casefold()})
        except DuplicateKeyError:
            raise GroupExists(name=group.name) from None

    async def delete_group(self, tenant_id: str, group_id: str) -> None:
        """Raises GroupNotFound, or GroupInUse while an entry names the group."""
        group = {"tenant_id": tenant_id, "group_id": uuid_text(group_id) or ""}

        async def delete_if_unused(session: AsyncIOMotorClientSession) -> None:
            deleted = await self._groups.delete_one(group, session=session)
            if not deleted.deleted_count:
                raise GroupNotFound
            if await self._entries.find_one(group, session=session):
                raise GroupInUse

        async with await self._database.client.start_session() as session:
            await session.with_transaction(delete_if_unused)

    async def hidden_from(self, caller: Caller) -> Sequence[str]:
        """The sorted ids of the packages that are hidden from a client at its address.

        Entries for a network apply to clients without an id too.
        """
        if caller.kind is not Kind.CLIENT:
            return []
        entries = [
            entry
            for entry in await self.entries_for(caller.tenant_id, caller.client_id)
            if entry.applies_to(caller.client_id, caller.address)
        ]
        group_ids = sorted({entry.group_id for entry in entries if entry.group_id})
        groups = await self.groups_of(caller.tenant_id, group_ids) if group_ids else []
        listings: list[Entry | Group] = [*entries, *groups]
        return sorted({package_id for listing in listings for package_id in listing.package_ids})

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
