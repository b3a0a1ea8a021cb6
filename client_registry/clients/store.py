"""Clients, their errors, and their documents in MongoDB."""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from datetime import datetime
from ipaddress import ip_address
from typing import NamedTuple

from motor.motor_asyncio import AsyncIOMotorClientSession
from pymongo import ASCENDING, IndexModel, ReturnDocument
from pymongo.errors import BulkWriteError, DuplicateKeyError

from common.errors import Conflict, Forbidden, InvalidField, NotFound
from common.mongo import Document, Indexes, MongoDatabase
from common.tenants import Address

DUPLICATE_KEY = 11000  # error code of MongoDB
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def uuid_text(text: str) -> str | None:
    """The UUID in its canonical spelling; None if the text is no UUID."""
    lower = text.lower()
    return lower if _UUID.fullmatch(lower) else None


@dataclass(frozen=True)
class Client:
    """A registered client. `ip`, `last_seen` and `program` are those of its last call.

    `program` is the kind of program that called: 0 other, 1 the desktop client. `ring` is "" unless one was chosen.
    With `source_address`, its token counts in an address of the source, too.
    `enrolled_by` is the id of the API token with which the machine registered itself, else "".
    """

    client_id: str
    name: str
    created_at: datetime
    token_hint: str
    ip: str | None = None
    last_seen: datetime | None = None
    program: int = 0
    enabled: bool = True
    ring: str = ""
    source_address: bool = True
    enrolled_by: str = ""


class Placement(NamedTuple):
    """The number of clients with one chosen ring. `ip` is "" for those of all addresses, None for those without one."""

    ring: str
    ip: str | None
    clients: int

    @property
    def address(self) -> Address | None:
        return ip_address(self.ip) if self.ip else None


@dataclass(frozen=True)
class ClientQuery:
    """Selects clients: `text` is part of the name, the address or the token's end; no `client_ids` select all.

    `last_seen` has the operators of MongoDB and their values. An `enrolled_by` of "" selects all.
    `among` selects the clients of these placements; None selects all.
    """

    text: str = ""
    client_ids: tuple[str, ...] = ()
    enabled: bool | None = None
    last_seen: Mapping[str, datetime | None] = field(default_factory=dict)
    enrolled_by: str = ""
    among: Sequence[Placement] | None = None
    offset: int = 0
    limit: int = 50


class SlotTaken(Exception):
    """Another client got this slot at the same moment."""


class ClientNotFound(NotFound):
    code = "client_not_found"
    # The same text for a wrong id and a wrong token, so that nobody can probe for ids.
    text = "There is no client with this id and token."


class ClientUnknown(InvalidField):
    """No client has this name. `nearest` is the most similar name that exists, "" for none."""

    def __init__(self, name: str, nearest: str) -> None:
        message = f"there is no client {name!r}" + (f"; did you mean {nearest!r}?" if nearest else "")
        reason = "client_unknown_but_similar" if nearest else "client_unknown"
        super().__init__("hostname", message, reason=reason, name=name, nearest=nearest)


class ClientExists(Conflict):
    code = "client_exists"
    text = "There is a client {name!r} already."


class ClientLimitExceeded(Forbidden):
    code = "client_limit_exceeded"
    text = "The tenant may have {limit} clients, and has them."


class NameNotResolved(InvalidField):
    code = "name_not_resolved"

    def __init__(self, name: str) -> None:
        super().__init__("client_name", f"no IP address was found for {name!r}", reason=self.code, name=name)


CLIENT_INDEXES: Indexes = {
    "clients": [
        IndexModel(["tenant_id", name], unique=True) for name in ("client_id", "name_key", "token_digest", "seat")
    ]
}


class MongoClientStore:
    """One document per client; names, tokens and slots are unique within the tenant."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database
        self._clients = database["clients"]

    async def list(self, tenant_id: str) -> Sequence[Client]:
        cursor = self._clients.find({"tenant_id": tenant_id}).sort("name_key", ASCENDING)
        return [_client(document) async for document in cursor]

    async def find(self, tenant_id: str, query: ClientQuery) -> tuple[Sequence[Client], int]:
        match: Document = {"tenant_id": tenant_id}
        text = query.text.casefold()
        if query.client_ids:
            match["client_id"] = {"$in": list(query.client_ids)}
        if query.enabled is not None:
            match["enabled"] = query.enabled
        if query.last_seen:
            match["last_seen"] = dict(query.last_seen)
        if query.enrolled_by:
            match["enrolled_by"] = query.enrolled_by
        if query.among is not None:
            rings = [placement.ring for placement in query.among if placement.ip == ""]
            addresses = [placement.ip for placement in query.among if placement.ip != ""]
            match["$and"] = [{"$or": [{"ring": {"$in": rings}}, {"ring": "", "ip": {"$in": addresses}}]}]
        if text:
            match["$or"] = [{name: {"$regex": re.escape(text)}} for name in ("name_key", "ip", "token_hint")]
        page: list[Document] = [
            {
                "$set": {
                    "is_other": {"$ne": ["$name_key", {"$literal": text}]},
                    "is_inside": {"$ne": [{"$indexOfCP": ["$name_key", {"$literal": text}]}, 0]},
                }
            },
            {"$sort": {"is_other": ASCENDING, "is_inside": ASCENDING, "name_key": ASCENDING}},
            {"$skip": query.offset},
            {"$limit": query.limit},
        ]
        facets = {"total": [{"$count": "clients"}], "page": page}
        (result,) = await self._clients.aggregate([{"$match": match}, {"$facet": facets}]).to_list(1)
        return [_client(document) for document in result["page"]], sum(row["clients"] for row in result["total"])

    async def placements(self, tenant_id: str, *, by_address: bool) -> Sequence[Placement]:
        """The clients by their chosen rings; `by_address`, those without one also by their addresses."""
        ip = {"$cond": [{"$eq": ["$ring", ""]}, "$ip", ""]} if by_address else {"$literal": ""}
        stages: list[Mapping[str, object]] = [
            {"$match": {"tenant_id": tenant_id}},
            {"$group": {"_id": {"ring": "$ring", "ip": ip}, "clients": {"$sum": 1}}},
        ]
        rows = await self._clients.aggregate(stages).to_list(None)
        return [Placement(row["_id"]["ring"], row["_id"]["ip"], row["clients"]) for row in rows]

    async def count_seen(self, tenant_id: str, since: Mapping[str, datetime]) -> Mapping[str, int]:
        """The number of clients whose last call is not before a time, for each of these times by its name."""
        numbers = {
            name: {"$sum": {"$cond": [{"$gte": ["$last_seen", moment]}, 1, 0]}} for name, moment in since.items()
        }
        stages: list[Mapping[str, object]] = [
            {"$match": {"tenant_id": tenant_id, "last_seen": {"$gte": min(since.values())}}},
            {"$group": {"_id": None, **numbers}},
        ]
        rows = await self._clients.aggregate(stages).to_list(1)
        return {name: rows[0][name] if rows else 0 for name in since}

    async def counts(self) -> Mapping[str, int]:
        """The number of clients of each tenant that has any."""
        stages: list[Mapping[str, object]] = [
            {"$match": {"tenant_id": {"$gt": ""}}},  # With it the count needs an index only.
            {"$group": {"_id": "$tenant_id", "clients": {"$sum": 1}}},
        ]
        return {document["_id"]: document["clients"] async for document in self._clients.aggregate(stages)}

    async def slots(self, tenant_id: str) -> AbstractSet[int]:
        cursor = self._clients.find({"tenant_id": tenant_id}, {"_id": False, "seat": True})
        return {document["seat"] async for document in cursor}

    async def add(self, tenant_id: str, client: Client, *, digest: str, key_id: str, slot: int) -> None:
        """Raises ClientExists for a duplicate name, SlotTaken for a duplicate slot."""
        try:
            await self._clients.insert_one(_document(tenant_id, client, digest, key_id, slot))
        except DuplicateKeyError as error:
            if "seat" in (error.details or {}).get("keyPattern", {}):
                raise SlotTaken from None
            raise ClientExists(name=client.name) from None

    async def slots_by_name(self, tenant_id: str) -> Mapping[str, int]:
        """The slots of all clients, by their casefolded names."""
        cursor = self._clients.find({"tenant_id": tenant_id}, {"_id": False, "name_key": True, "seat": True})
        return {document["name_key"]: document["seat"] async for document in cursor}

    async def add_all(self, tenant_id: str, clients: Sequence[tuple[Client, str, str, int]]) -> None:
        """Add clients, each with the digest and the key of its token and its slot, all or none.

        Raises SlotTaken if a name or a slot is taken.
        """
        documents = [_document(tenant_id, *values) for values in clients]

        async def insert(session: AsyncIOMotorClientSession) -> None:
            await self._clients.insert_many(documents, session=session)

        if not documents:
            return
        async with await self._database.client.start_session() as session:
            try:
                await session.with_transaction(insert)
            except BulkWriteError as error:
                if any(each.get("code") == DUPLICATE_KEY for each in error.details["writeErrors"]):
                    raise SlotTaken from None
                raise

    async def find_by_digests(self, tenant_id: str, digests: Sequence[str]) -> tuple[Client | None, str]:
        """The client whose token has one of these digests, and the id of the key of its digest."""
        document = await self._clients.find_one({"tenant_id": tenant_id, "token_digest": {"$in": list(digests)}})
        return (_client(document), document.get("token_key", "")) if document else (None, "")

    async def record_sighting(
        self,
        tenant_id: str,
        client_id: str,
        *,
        digests: Sequence[str],
        key_id: str,
        ip: str,
        program: int,
        at: datetime,
    ) -> None:
        """Store the sighting and the first digest, if the client's token still has one of the digests."""
        token = {"token_digest": digests[0], "token_key": key_id}
        await self._clients.update_one(
            {"tenant_id": tenant_id, "client_id": client_id, "token_digest": {"$in": list(digests)}},
            {"$set": {**token, "ip": ip, "program": program, "last_seen": at}},
        )

    async def change(self, tenant_id: str, client_id: str, values: Mapping[str, object]) -> Client | None:
        """Change `enabled`, `ring`, `source_address`, or the stored parts of the token; None without such a client."""
        document = await self._clients.find_one_and_update(
            {"tenant_id": tenant_id, "client_id": client_id}, {"$set": values}, return_document=ReturnDocument.AFTER
        )
        return _client(document) if document else None

    async def change_enrolled(
        self, tenant_id: str, name: str, token_id: str, values: Mapping[str, object]
    ) -> Client | None:
        """Change an enabled client that this API token enrolled. Returns it, None if there is none of this name."""
        query = {"tenant_id": tenant_id, "name_key": name.casefold(), "enrolled_by": token_id, "enabled": True}
        document = await self._clients.find_one_and_update(
            query, {"$set": values}, return_document=ReturnDocument.AFTER
        )
        return _client(document) if document else None

    async def delete(self, tenant_id: str, client_id: str, *, digests: Sequence[str]) -> bool:
        """Delete a client and its blacklist entries; False if there is no such client."""

        async def delete_both(session: AsyncIOMotorClientSession) -> bool:
            client = {"tenant_id": tenant_id, "client_id": client_id}
            with_token = {**client, "token_digest": {"$in": list(digests)}}
            deleted = await self._clients.delete_one(with_token, session=session)
            if deleted.deleted_count:
                await self._database["entries"].delete_many(client, session=session)
            return deleted.deleted_count == 1

        async with await self._database.client.start_session() as session:
            return await session.with_transaction(delete_both)

    async def names_under_other_keys(self, tenant_id: str, key_id: str) -> Sequence[str]:
        """The names of the clients whose tokens are not stored under this key, sorted."""
        query = {"tenant_id": tenant_id, "token_key": {"$ne": key_id}}
        cursor = self._clients.find(query, {"_id": False, "name": True}).sort("name_key", ASCENDING)
        return [document["name"] async for document in cursor]

    async def forget_tenant(self, tenant_id: str) -> None:
        """Delete all data of a tenant in this service."""
        for name in ("clients", "entries", "groups", "releases"):
            await self._database[name].delete_many({"tenant_id": tenant_id})


def _document(tenant_id: str, client: Client, digest: str, key_id: str, slot: int) -> Document:
    keys = {"name_key": client.name.casefold(), "token_digest": digest, "token_key": key_id, "seat": slot}
    return {"tenant_id": tenant_id, **vars(client), **keys}


def _client(document: Document) -> Client:
    # Clients of earlier releases lack the newest fields.
    return Client(**{each.name: document[each.name] for each in fields(Client) if each.name in document})
