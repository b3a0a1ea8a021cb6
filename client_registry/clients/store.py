"""Clients in MongoDB, and what all that this service keeps there is found by."""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from motor.motor_asyncio import AsyncIOMotorClientSession
from pymongo import ASCENDING, IndexModel
from pymongo.errors import DuplicateKeyError

from client_registry.blacklist import store as blacklist_store
from client_registry.clients.service import SeatTaken, Wanted
from client_registry.model import Client, ClientExists
from client_registry.releases import store as release_store
from common.mongo import Document, Indexes, MongoDatabase

INDEXES: Indexes = {
    "clients": [
        IndexModel([("tenant_id", ASCENDING), (field, ASCENDING)], unique=True)
        for field in ("client_id", "name_key", "token_digest", "seat")
    ],
    **blacklist_store.INDEXES,
    **release_store.INDEXES,
}


class MongoClientStore:
    """One document a client."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database
        self._clients = database["clients"]

    async def list(self, tenant_id: str) -> Sequence[Client]:
        found = self._clients.find({"tenant_id": tenant_id}).sort("name_key", ASCENDING)
        return [_client(document) async for document in found]

    async def find(self, tenant_id: str, wanted: Wanted) -> tuple[Sequence[Client], int]:
        match: Document = {"tenant_id": tenant_id}
        text = wanted.text.casefold()
        if wanted.client_ids:
            match["client_id"] = {"$in": list(wanted.client_ids)}
        if text:
            match["$or"] = [{field: {"$regex": re.escape(text)}} for field in ("name_key", "ip", "token_hint")]
        page: list[Document] = [
            {"$set": {"another": {"$ne": ["$name_key", {"$literal": text}]}}},
            {"$sort": {"another": ASCENDING, "name_key": ASCENDING}},
            {"$skip": wanted.offset},
            {"$limit": wanted.limit},
        ]
        pages = {"total": [{"$count": "clients"}], "page": page}
        (found,) = await self._clients.aggregate([{"$match": match}, {"$facet": pages}]).to_list(1)
        return [_client(document) for document in found["page"]], sum(row["clients"] for row in found["total"])

    async def count(self, tenant_id: str) -> int:
        return await self._clients.count_documents({"tenant_id": tenant_id})

    async def counts(self) -> Mapping[str, int]:
        """How many clients each tenant has that has any, counted in an index."""
        stages: list[Mapping[str, object]] = [
            {"$match": {"tenant_id": {"$gt": ""}}},
            {"$group": {"_id": "$tenant_id", "clients": {"$sum": 1}}},
        ]
        found = self._clients.aggregate(stages)
        return {document["_id"]: document["clients"] async for document in found}

    async def seats(self, tenant_id: str) -> AbstractSet[int]:
        found = self._clients.find({"tenant_id": tenant_id}, {"_id": False, "seat": True})
        return {document["seat"] async for document in found}

    async def add(self, tenant_id: str, client: Client, *, digest: str, seat: int) -> None:
        document = {
            "tenant_id": tenant_id,
            "client_id": client.client_id,
            "name": client.name,
            "name_key": client.name.casefold(),
            "token_digest": digest,
            "token_hint": client.token_hint,
            "seat": seat,
            "ip": client.ip,
            "last_seen": client.last_seen,
            "program": client.program,
            "enabled": client.enabled,
            "created_at": client.created_at,
        }
        try:
            await self._clients.insert_one(document)
        except DuplicateKeyError as error:
            if "seat" in (error.details or {}).get("keyPattern", {}):
                raise SeatTaken from None
            raise ClientExists(client.name) from None

    async def find_by_digests(self, tenant_id: str, digests: Sequence[str]) -> Client | None:
        document = await self._clients.find_one({"tenant_id": tenant_id, "token_digest": {"$in": list(digests)}})
        return _client(document) if document else None

    async def note_sighting(
        self, tenant_id: str, client_id: str, *, digests: Sequence[str], ip: str, program: int, at: datetime
    ) -> None:
        # The client may have got another token since it was found; that one stays.
        await self._clients.update_one(
            {"tenant_id": tenant_id, "client_id": client_id, "token_digest": {"$in": list(digests)}},
            {"$set": {"token_digest": digests[0], "ip": ip, "program": program, "last_seen": at}},
        )

    async def set_enabled(self, tenant_id: str, client_id: str, enabled: bool) -> bool:
        return await self._set(tenant_id, client_id, {"enabled": enabled})

    async def set_token(self, tenant_id: str, client_id: str, *, digest: str, hint: str) -> bool:
        return await self._set(tenant_id, client_id, {"token_digest": digest, "token_hint": hint})

    async def delete(self, tenant_id: str, client_id: str, *, digests: Sequence[str]) -> bool:
        async def both(session: AsyncIOMotorClientSession) -> bool:
            wanted = {"tenant_id": tenant_id, "client_id": client_id, "token_digest": {"$in": list(digests)}}
            deleted = await self._clients.delete_one(wanted, session=session)
            if deleted.deleted_count:
                about = {"tenant_id": tenant_id, "client_id": client_id}
                await self._database["entries"].delete_many(about, session=session)
            return deleted.deleted_count == 1

        async with await self._database.client.start_session() as session:
            return await session.with_transaction(both)

    async def count_unseen(self, tenant_id: str, since: datetime) -> int:
        """How many clients of before have not called since: their tokens' digests are still what they were then."""
        before = {"created_at": {"$lt": since}, "$nor": [{"last_seen": {"$gte": since}}]}
        return await self._clients.count_documents({"tenant_id": tenant_id, **before})

    async def forget_tenant(self, tenant_id: str) -> None:
        """Delete all that this service keeps of a tenant."""
        for name in INDEXES:
            await self._database[name].delete_many({"tenant_id": tenant_id})

    async def _set(self, tenant_id: str, client_id: str, values: Mapping[str, object]) -> bool:
        result = await self._clients.update_one({"tenant_id": tenant_id, "client_id": client_id}, {"$set": values})
        return result.matched_count == 1


def _client(document: Document) -> Client:
    names = ("client_id", "name", "created_at", "token_hint", "ip", "last_seen", "program", "enabled")
    return Client(**{name: document[name] for name in names})
