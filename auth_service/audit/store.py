"""The audit log in MongoDB: its entries, and the chain of signatures that shows a changed or missing one."""

import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self
from uuid import uuid4

import bson
from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.errors import DuplicateKeyError

from common.errors import InvalidField, Unavailable
from common.mongo import Document, Indexes, MongoDatabase
from common.telemetry import is_hidden

OPERATORS = "internal"  # the log of operators' commands without a tenant; no tenant can have this id
_HEAD = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")


class AuditBusy(Unavailable):
    """Too many writers append to one log at once; this entry was not recorded."""

    text = "The audit log is busy; try again soon."


class SequenceConflict(Exception):
    """Another entry has this number already."""


@dataclass(frozen=True)
class AuditEntry:
    """A write or a sign-in of one administrator or operator.

    `target` holds short names and ids. `changes` holds the old and the new value of each setting. Neither holds a
    secret. Recording the same `entry_id` again changes nothing.
    """

    operation: str
    user: str
    ip: str
    status: int
    request_id: str
    target: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    entry_id: str = field(default_factory=lambda: uuid4().hex)


def to_audit_text(text: str) -> str:
    r"""Escape characters that nobody sees, and those that reorder others: `\u202e`. Line breaks and tabs stay."""
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    is_escaped = is_hidden(character) and character not in "\t\n\r"
    return character.encode("unicode_escape").decode() if is_escaped else character


@dataclass(frozen=True)
class Head:
    """The newest entry of a log: its number, from 1 on, and its signature."""

    sequence: int = 0
    hash: str = "0" * 64

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `SEQUENCE:HASH`. Raises InvalidField."""
        match = _HEAD.fullmatch(text)
        if not match:
            raise InvalidField("--expect", "must be SEQUENCE:HASH, as `pkgrepo audit verify` printed it")
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"{self.sequence}:{self.hash}"


@dataclass(frozen=True)
class ChainedEntry:
    """An entry with its number, the signature before it, and its own signature."""

    tenant_id: str
    sequence: int
    previous: str
    entry: AuditEntry
    hash: str = ""

    @property
    def head(self) -> Head:
        return Head(self.sequence, self.hash)

    def content(self) -> dict[str, Any]:
        """The signed content as JSON values."""
        entry = self.entry
        return {
            "tenant_id": self.tenant_id,
            "sequence": self.sequence,
            "id": entry.entry_id,
            "at": entry.at.isoformat(timespec="milliseconds"),
            "user": entry.user,
            "ip": entry.ip,
            "operation": entry.operation,
            "target": dict(entry.target),
            "changes": {name: {"before": before, "after": after} for name, (before, after) in entry.changes.items()},
            "status": entry.status,
            "request_id": entry.request_id,
            "previous": self.previous,
        }

    def exported(self) -> dict[str, Any]:
        """The content with its signature: an entry of the interface, and a line of an export."""
        return {**self.content(), "hash": self.hash}


@dataclass(frozen=True)
class SignedHead:
    """The head that is stored beside the log."""

    head: Head
    signature: str


class Outcome(StrEnum):
    """Whether an operation was executed."""

    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True)
class Selection:
    """A filter of entries: before a number, of a user, of some operations, with an outcome, of a time range.

    Empty or None selects all.

    At most `limit` entries are selected, the newest first unless `oldest_first`.
    """

    before: int | None = None
    user: str = ""
    operations: tuple[str, ...] = ()
    outcome: Outcome | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int | None = None
    oldest_first: bool = False


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
    if selection.user:
        conditions["user"] = selection.user
    if selection.operations:
        conditions["operation"] = {"$in": selection.operations}
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


class ChainBroken(Exception):
    """The log was altered; `sequence` is the first entry that shows it, the text says how."""

    def __init__(self, sequence: int, why: str) -> None:
        super().__init__(f"entry {sequence} {why}")
        self.sequence = sequence


class AuditSigner:
    """Signs with the first of its keys and verifies with each of them."""

    def __init__(self, keys: str) -> None:
        """`keys` are separated by white space, the newest first."""
        self._keys = [key.encode() for key in keys.split()]

    def sign(self, tenant_id: str, head: Head, entry: AuditEntry) -> ChainedEntry:
        """The signed entry that follows `head`."""
        position = (tenant_id, head.sequence + 1, head.hash)
        return ChainedEntry(*position, entry, self._signatures(ChainedEntry(*position, entry).content())[0])

    def verify(self, chained: ChainedEntry) -> bool:
        return chained.hash in self._signatures(chained.content())

    def sign_head(self, tenant_id: str, head: Head) -> SignedHead:
        return SignedHead(head, self._signatures(_head_content(tenant_id, head))[0])

    def verify_head(self, tenant_id: str, signed: SignedHead) -> bool:
        return signed.signature in self._signatures(_head_content(tenant_id, signed.head))

    def _signatures(self, content: dict[str, Any]) -> list[str]:
        # Canonical: sorted names, no spaces, everything beyond ASCII escaped.
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")
        return [hmac.new(key, canonical, hashlib.sha256).hexdigest() for key in self._keys]


def _head_content(tenant_id: str, head: Head) -> dict[str, Any]:
    return {"head_of": tenant_id, "sequence": head.sequence, "hash": head.hash}


async def verify(
    store: MongoAuditStore,
    signer: AuditSigner,
    tenant_id: str,
    *,
    expected: Head | None = None,
    checked: Callable[[], None] = lambda: None,
) -> Head:
    """Verify a whole log while others may append to it, and return its head; `checked` is called after each entry.

    `expected` is an earlier head of the log. Raises ChainBroken.
    """
    before = await store.signed_head(tenant_id)
    stored = before.head if before and signer.verify_head(tenant_id, before) else None
    known_heads = [head for head in (expected, stored) if head]
    last = Head()
    async for chained in store.select(tenant_id, Selection(oldest_first=True)):
        number = last.sequence + 1
        if chained is not None and chained.sequence > number:
            raise ChainBroken(number, "was removed")
        if chained is None or chained.sequence < number or not signer.verify(chained):
            raise ChainBroken(number, "is not as it was written: altered, moved, or put there by someone else")
        if chained.previous != last.hash:
            raise ChainBroken(number, "does not follow the one before, which is another than was written there")
        last = chained.head
        if any(head.sequence == last.sequence and head != last for head in known_heads):
            raise ChainBroken(number, "is another than there was once")
        checked()
    for head in known_heads:
        if head.sequence > last.sequence:
            raise ChainBroken(last.sequence + 1, f"was removed: the log reached entry {head.sequence} once")
    if before and not stored:
        raise ChainBroken(last.sequence, "is the newest, but the note of the newest is not as it was written")
    after = await store.signed_head(tenant_id)
    if last.sequence - (after.head.sequence if after else 0) > 1:
        raise ChainBroken(last.sequence, "is the newest, but the note of the newest was removed or put back")
    return last
