"""The audit log in MongoDB."""

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC
from typing import Any

import bson
from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.errors import DuplicateKeyError

from auth_service.audit.chain import Head, Link, Note
from auth_service.audit.service import DuplicateEntry, Selection, SequenceConflict
from auth_service.model import AuditEntry
from common.mongo import Document, Indexes, MongoDatabase

AUDIT_INDEXES: Indexes = {
    "audit_log": [
        IndexModel([("tenant_id", ASCENDING), ("sequence", DESCENDING)], unique=True),
        IndexModel([("tenant_id", ASCENDING), ("user", ASCENDING), ("sequence", DESCENDING)]),
        IndexModel([("tenant_id", ASCENDING), ("operation", ASCENDING), ("sequence", DESCENDING)]),
    ],
    "audit_heads": [IndexModel([("tenant_id", ASCENDING)], unique=True)],
}
COLLECTIONS = ("audit", "audit_log", "audit_heads")
BATCH = 1000  # entries that are fetched at once


class MongoAuditStore:
    """One document an entry, its id the entry's, and one for the noted head of each log.

    `audit` is where versions before the chain have written.
    """

    def __init__(self, database: MongoDatabase) -> None:
        self._log = database["audit_log"]
        self._heads = database["audit_heads"]
        self._unchained = database["audit"]

    async def add(self, link: Link) -> None:
        try:
            await self._log.insert_one(_document(link))
        except DuplicateKeyError as error:
            if "sequence" in (error.details or {}).get("keyPattern", {}):
                raise SequenceConflict from None
            raise DuplicateEntry from None

    async def newest(self, tenant_id: str) -> Head:
        found = await self._log.find_one({"tenant_id": tenant_id}, sort=[("sequence", DESCENDING)])
        return Head(int(found["sequence"]), str(found["hash"])) if found else Head()

    async def note(self, tenant_id: str) -> Note | None:
        found = await self._heads.find_one({"tenant_id": tenant_id})
        return Note(Head(found["sequence"], found["hash"]), found["seal"]) if found else None

    async def keep_note(self, tenant_id: str, note: Note) -> None:
        told = {"sequence": note.head.sequence, "hash": note.head.hash, "seal": note.seal}
        earlier = {"tenant_id": tenant_id, "sequence": {"$lt": note.head.sequence}}
        with suppress(DuplicateKeyError):  # The same or a later one is noted.
            await self._heads.update_one(earlier, {"$set": told}, upsert=True)

    async def select(
        self, tenant_id: str, wanted: Selection, *, limit: int | None = None, oldest_first: bool = False
    ) -> AsyncIterator[Link | None]:
        order = ASCENDING if oldest_first else DESCENDING
        found = self._log.find(_filter(tenant_id, wanted)).sort("sequence", order).limit(limit or 0).batch_size(BATCH)
        async for document in found:
            yield link_of(document)

    async def unchained(self, tenant_id: str) -> AsyncIterator[AuditEntry]:
        async for document in self._unchained.find({"tenant_id": tenant_id}).sort("_id", ASCENDING):
            yield _entry({**document, "_id": str(document["_id"]), "changes": []})

    async def forget_unchained(self, tenant_id: str, entry_id: str) -> None:
        await self._unchained.delete_one({"tenant_id": tenant_id, "_id": bson.ObjectId(entry_id)})


def _filter(tenant_id: str, wanted: Selection) -> Document:
    found: Document = {"tenant_id": tenant_id}
    if wanted.before is not None:
        found["sequence"] = {"$lt": wanted.before}
    if wanted.user:
        found["user"] = wanted.user
    if wanted.operation:
        found["operation"] = wanted.operation
    bounds = {"$gte": wanted.since, "$lt": wanted.until}
    if at := {name: value for name, value in bounds.items() if value is not None}:
        found["at"] = at
    return found


def _document(link: Link) -> Document:
    entry = link.entry
    return {
        "_id": entry.entry_id,
        "tenant_id": link.tenant_id,
        "sequence": link.sequence,
        "operation": entry.operation,
        "user": entry.user,
        "ip": entry.ip,
        "status": entry.status,
        "request_id": entry.request_id,
        # Names may hold dots and dollars, which a field's name should not.
        "target": [{"name": name, "value": value} for name, value in entry.target.items()],
        "changes": [
            {"name": name, "before": before, "after": after} for name, (before, after) in entry.changes.items()
        ],
        "at": entry.at,
        "previous": link.previous,
        "hash": link.hash,
    }


def link_of(document: Document) -> Link | None:
    """The entry that a document is, None where it is not as this program writes them."""
    try:
        place = (document["tenant_id"], document["sequence"], document["previous"])
        link = Link(*place, _entry(document), document["hash"])
        # Not a field more, and none of another type: no seal covers what is not read.
        written = _of_its_types(link) and bson.encode(_document(link)) == bson.encode(document)
    except (KeyError, TypeError, ValueError, AttributeError, bson.errors.BSONError):
        return None
    return link if written else None


def _of_its_types(link: Link) -> bool:
    told = {**link.told(), "hash": link.hash}
    numbers = [told.pop("sequence"), told.pop("status")]
    target, changes = told.pop("target"), told.pop("changes")
    texts = [*told.values(), *target, *target.values(), *changes]
    texts += [text for change in changes.values() for text in change.values()]
    return all(isinstance(text, str) for text in texts) and all(
        isinstance(n, int) and not isinstance(n, bool) for n in numbers
    )


def _entry(document: Document) -> AuditEntry:
    target: dict[str, str] = {item["name"]: item["value"] for item in document["target"]}
    changes: dict[str, tuple[str, str]] = {
        item["name"]: (item["before"], item["after"]) for item in document["changes"]
    }
    plain: dict[str, Any] = {name: document[name] for name in ("operation", "user", "ip", "status", "request_id")}
    return AuditEntry(
        **plain, target=target, changes=changes, at=document["at"].astimezone(UTC), entry_id=document["_id"]
    )
