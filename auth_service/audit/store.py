"""The audit log in MongoDB."""

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC

import bson
from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.errors import DuplicateKeyError

from auth_service.audit.model import AuditEntry, ChainedEntry, Head, Outcome, Selection, SequenceConflict, SignedHead
from common.mongo import Document, Indexes, MongoDatabase

AUDIT_INDEXES: Indexes = {
    "audit_log": [
        IndexModel([("tenant_id", ASCENDING), ("sequence", DESCENDING)], unique=True),
        IndexModel([("tenant_id", ASCENDING), ("user", ASCENDING), ("sequence", DESCENDING)]),
        IndexModel([("tenant_id", ASCENDING), ("operation", ASCENDING), ("sequence", DESCENDING)]),
    ],
    "audit_heads": [IndexModel([("tenant_id", ASCENDING)], unique=True)],
}
PLAIN_FIELDS = ("operation", "user", "ip", "status", "request_id")
FIRST_PROBLEM = 400  # the first status of a refused operation
BATCH = 1000  # entries per fetch


class MongoAuditStore:
    """One document per entry, with the entry's id, and one per signed head."""

    def __init__(self, database: MongoDatabase) -> None:
        self._log = database["audit_log"]
        self._heads = database["audit_heads"]

    async def add(self, chained: ChainedEntry) -> bool:
        """Add an entry; False if the log has it already. Raises SequenceConflict."""
        try:
            await self._log.insert_one(_document(chained))
        except DuplicateKeyError as error:
            if "sequence" in (error.details or {}).get("keyPattern", {}):
                raise SequenceConflict from None
            return False
        return True

    async def newest(self, tenant_id: str) -> Head:
        document = await self._log.find_one({"tenant_id": tenant_id}, sort=[("sequence", DESCENDING)])
        return Head(int(document["sequence"]), str(document["hash"])) if document else Head()

    async def signed_head(self, tenant_id: str) -> SignedHead | None:
        document = await self._heads.find_one({"tenant_id": tenant_id})
        return SignedHead(Head(document["sequence"], document["hash"]), document["seal"]) if document else None

    async def save_head(self, tenant_id: str, signed: SignedHead) -> None:
        """Store it unless the same or a later head is stored."""
        document = {"sequence": signed.head.sequence, "hash": signed.head.hash, "seal": signed.signature}
        earlier = {"tenant_id": tenant_id, "sequence": {"$lt": signed.head.sequence}}
        with suppress(DuplicateKeyError):
            await self._heads.update_one(earlier, {"$set": document}, upsert=True)

    async def select(self, tenant_id: str, selection: Selection) -> AsyncIterator[ChainedEntry | None]:
        """Entries by their numbers; None for a document that this program did not write."""
        order = ASCENDING if selection.oldest_first else DESCENDING
        cursor = self._log.find(_filter(tenant_id, selection)).sort("sequence", order).limit(selection.limit or 0)
        async for document in cursor.batch_size(BATCH):
            yield parse_document(document)


def _filter(tenant_id: str, selection: Selection) -> Document:
    conditions: Document = {"tenant_id": tenant_id}
    if selection.before is not None:
        conditions["sequence"] = {"$lt": selection.before}
    conditions |= {name: value for name in ("user", "operation") if (value := getattr(selection, name))}
    if selection.outcome:
        conditions["status"] = {"$lt" if selection.outcome is Outcome.DONE else "$gte": FIRST_PROBLEM}
    bounds = {"$gte": selection.since, "$lt": selection.until}
    if at := {name: value for name, value in bounds.items() if value is not None}:
        conditions["at"] = at
    return conditions


def _document(chained: ChainedEntry) -> Document:
    entry = chained.entry
    return {
        "_id": entry.entry_id,
        "tenant_id": chained.tenant_id,
        "sequence": chained.sequence,
        **{name: getattr(entry, name) for name in PLAIN_FIELDS},
        # Lists, because names may hold dots and dollars, which a field's name should not.
        "target": [{"name": name, "value": value} for name, value in entry.target.items()],
        "changes": [{"name": name, "before": old, "after": new} for name, (old, new) in entry.changes.items()],
        "at": entry.at,
        "previous": chained.previous,
        "hash": chained.hash,
    }


def parse_document(document: Document) -> ChainedEntry | None:
    """The entry of a document; None if this program did not write the document."""
    try:
        position = (document["tenant_id"], document["sequence"], document["previous"])
        chained = ChainedEntry(*position, _entry(document), document["hash"])
        # The document must have no other field or type: the signature covers only the parsed content.
        unaltered = _has_right_types(chained) and bson.encode(_document(chained)) == bson.encode(document)
    except (KeyError, TypeError, ValueError, AttributeError, bson.errors.BSONError):
        return None
    return chained if unaltered else None


def _has_right_types(chained: ChainedEntry) -> bool:
    content = chained.exported()
    numbers = [content.pop("sequence"), content.pop("status")]
    target, changes = content.pop("target"), content.pop("changes")
    texts = [*content.values(), *target, *target.values(), *changes]
    texts += [text for change in changes.values() for text in change.values()]
    return all(isinstance(text, str) for text in texts) and all(
        isinstance(number, int) and not isinstance(number, bool) for number in numbers
    )


def _entry(document: Document) -> AuditEntry:
    values = {name: document[name] for name in PLAIN_FIELDS}
    target = {item["name"]: item["value"] for item in document["target"]}
    changes = {item["name"]: (item["before"], item["after"]) for item in document["changes"]}
    at = document["at"].astimezone(UTC)
    return AuditEntry(**values, target=target, changes=changes, at=at, entry_id=document["_id"])
