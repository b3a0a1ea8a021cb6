"""The chain of the audit log on a real MongoDB: racing appends leave no gap, and every tampering is found."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from pymongo.errors import BulkWriteError

from auth_service.audit import service as audit_module
from auth_service.audit.service import Audit
from auth_service.audit.store import (
    AUDIT_INDEXES,
    AuditBusy,
    AuditEntry,
    AuditSigner,
    ChainBroken,
    Head,
    MongoAuditStore,
    Selection,
    SignedHead,
    verify,
)
from common.mongo import Document, MongoDatabase
from tests.support.databases import own_database
from tests.support.factories import KEY

LENGTH = 8  # entries of the log in the tampering tests
SEALS = AuditSigner(KEY)


@dataclass(frozen=True)
class Log:
    """A tenant's log in a database that an attacker may write to."""

    database: MongoDatabase
    tenant_id: str

    @property
    def store(self) -> MongoAuditStore:
        return MongoAuditStore(self.database)

    async def append(self, count: int = 1, audit: Audit | None = None) -> None:
        for number in range(count):
            entry = AuditEntry(
                f"operation_{number}", "ada", "192.0.2.1", 200, "ab" * 16, {"a.b$c": "é"}, {"x": ("1", "2")}
            )
            await (audit or Audit(self.store, SEALS)).record(self.tenant_id, entry)

    async def verified(self, expected: Head | None = None) -> Head:
        return await verify(self.store, SEALS, self.tenant_id, expected=expected)

    async def broken_at(self, expected: Head | None = None) -> int | None:
        """The first broken entry, or None for a valid log."""
        try:
            await self.verified(expected)
        except ChainBroken as broken:
            return broken.sequence
        return None

    async def documents(self) -> list[Document]:
        return [row async for row in self._rows.find({"tenant_id": self.tenant_id}).sort("sequence", 1)]

    async def rewrite(self, documents: list[Document]) -> None:
        """Replace all rows, as an attacker with write access to the database can."""
        await self._rows.delete_many({"tenant_id": self.tenant_id})
        if documents:
            await self._rows.insert_many(documents)

    @property
    def _rows(self) -> Any:
        return self.database["audit_log"]


@pytest.fixture(scope="module")
async def database(mongo_url: str) -> AsyncIterator[MongoDatabase]:
    async with own_database(mongo_url, indexes=AUDIT_INDEXES) as opened:
        yield opened


@pytest.fixture
def log(database: MongoDatabase) -> Log:
    return Log(database, f"t{uuid4().hex[:12]}")


@pytest.fixture(scope="module")
async def original_log(database: MongoDatabase) -> tuple[Log, list[Document]]:
    """A log and its original rows."""
    log = Log(database, f"t{uuid4().hex[:12]}")
    await log.append(LENGTH)
    return log, await log.documents()


@pytest.mark.parametrize(("appends", "replicas"), [(100, 4), (20, 20)])
async def test_concurrent_appends_of_replicas_leave_no_gap(log: Log, appends: int, replicas: int) -> None:
    audits = [Audit(MongoAuditStore(log.database), SEALS) for _ in range(replicas)]

    await asyncio.gather(*(log.append(audit=audits[number % replicas]) for number in range(appends)))

    assert [row["sequence"] for row in await log.documents()] == list(range(1, appends + 1))
    assert (await log.verified()).sequence == appends


async def test_an_append_that_finds_no_free_number_raises(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "ATTEMPTS", 0)

    with pytest.raises(AuditBusy):
        await log.append()


async def test_an_entry_that_is_sent_twice_is_stored_once(log: Log) -> None:
    entry = AuditEntry("add_user", "ada", "192.0.2.1", 200, "")
    audits = [Audit(log.store, SEALS) for _ in range(4)]

    await asyncio.gather(*(audit.record(log.tenant_id, entry) for audit in audits for _ in range(3)))

    assert (await log.verified()).sequence == 1


async def test_an_entry_is_read_as_it_was_written(log: Log) -> None:
    entry = AuditEntry("add_user", "ada", "::1", 409, "ab" * 16, {"$a.b": "ü"}, {"x": ("", "y")}, entry_id="e" * 32)
    await Audit(log.store, SEALS).record(log.tenant_id, entry)

    [link] = [link async for link in log.store.select(log.tenant_id, Selection())]

    assert link
    assert (link.entry.target, link.entry.changes, link.entry.entry_id) == (entry.target, entry.changes, entry.entry_id)
    assert timedelta(0) <= entry.at - link.entry.at < timedelta(milliseconds=1)


async def test_a_crash_before_the_head_is_stored_breaks_nothing(log: Log) -> None:
    class DyingStore(MongoAuditStore):
        async def save_head(self, tenant_id: str, signed: SignedHead) -> None:
            raise ConnectionResetError

    for count in range(1, 4):
        with pytest.raises(ConnectionResetError):
            await log.append(audit=Audit(DyingStore(log.database), SEALS))
        assert (await log.verified()).sequence == 2 * count - 1
        await log.append()
        assert (await log.verified()).sequence == 2 * count


async def test_a_growing_log_can_be_verified(log: Log) -> None:
    await log.append(LENGTH)
    growing = asyncio.create_task(log.append(50))
    while not growing.done():
        await log.verified()
    await growing


async def test_the_log_of_a_tenant_has_no_entries_of_another(log: Log) -> None:
    other = Log(log.database, f"{log.tenant_id}x")
    await log.append(3)
    await other.append(2)
    await other.rewrite((await other.documents())[1:])

    assert (await log.broken_at(), await other.broken_at()) == (None, 1)


def field_names(document: Document) -> list[str]:
    return [name for name in document if name != "tenant_id"]  # A row that moves to another tenant counts as removed.


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10),
    st.lists(st.integers(0, 9), max_size=3),
    st.just({"name": "a", "value": "b"}),
    st.integers(0, 2**31).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
)
Tampering = Callable[[list[Document], st.DataObject], list[Document]]


def remove(rows: list[Document], data: st.DataObject) -> list[Document]:
    position = data.draw(st.integers(0, LENGTH - 1))
    return rows[:position] + rows[position + 1 :]


def alter(rows: list[Document], data: st.DataObject) -> list[Document]:
    row = data.draw(st.sampled_from(rows))
    name = data.draw(st.sampled_from([*field_names(row), "added"]))
    values = VALUES.filter(lambda value: repr(value) != repr(row.get(name, rows)))
    row[name] = data.draw(values.filter(lambda value: name != "_id" or not isinstance(value, list)))
    return rows


def alter_inside(rows: list[Document], data: st.DataObject) -> list[Document]:
    row = data.draw(st.sampled_from(rows))
    inside = data.draw(st.sampled_from([row["target"][0], row["changes"][0]]))
    name = data.draw(st.sampled_from([*inside, "added"]))
    inside[name] = data.draw(VALUES.filter(lambda value: value != inside.get(name, rows)))
    return rows


def drop_a_field(rows: list[Document], data: st.DataObject) -> list[Document]:
    row = data.draw(st.sampled_from(rows))
    del row[data.draw(st.sampled_from([name for name in field_names(row) if name != "_id"]))]
    return rows


def swap(rows: list[Document], data: st.DataObject) -> list[Document]:
    first, second = data.draw(st.lists(st.sampled_from(range(LENGTH)), min_size=2, max_size=2, unique=True))
    names = ["sequence", *data.draw(st.sampled_from([[], ["previous"], ["previous", "hash"]]))]
    for name in names:
        rows[first][name], rows[second][name] = rows[second][name], rows[first][name]
    return rows


def insert(rows: list[Document], data: st.DataObject) -> list[Document]:
    position = data.draw(st.integers(0, LENGTH))
    copied = copy.deepcopy(data.draw(st.sampled_from(rows)))
    for row in rows[position:]:
        row["sequence"] += 1
    return [*rows, {**copied, "_id": uuid4().hex, "sequence": position + 1}]


def truncate(rows: list[Document], data: st.DataObject) -> list[Document]:
    return rows[: data.draw(st.integers(0, LENGTH - 1))]


def forge(rows: list[Document], data: st.DataObject) -> list[Document]:
    """Rebuild the chain from an entry on, with another key."""
    first = data.draw(st.integers(0, LENGTH - 1))
    return rows[:first] + [{**row, "hash": uuid4().hex * 2} for row in rows[first:]]


TAMPERINGS = [remove, alter, alter_inside, drop_a_field, swap, insert, truncate, forge]
SAMPLE = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


async def assert_tampering_is_found(log: Log, original: list[Document], tampered: list[Document]) -> None:
    """Write the tampered rows, expect a broken log, and restore the original rows."""
    try:
        await log.rewrite(tampered)
    except BulkWriteError:  # The database itself refuses two entries with one number.
        await log.rewrite(original)
        reject()

    broken_at = await log.broken_at()

    await log.rewrite(original)
    assert await log.broken_at() is None
    first = next((n for n, (a, b) in enumerate(zip(original, _sorted(tampered), strict=False), 1) if a != b), None)
    assert broken_at is not None
    assert first is None or broken_at <= first


@pytest.mark.parametrize("tampering", TAMPERINGS)
@SAMPLE
@given(data=st.data())
async def test_tampering_is_found(
    original_log: tuple[Log, list[Document]], tampering: Tampering, data: st.DataObject
) -> None:
    log, original = original_log
    await assert_tampering_is_found(log, original, tampering(copy.deepcopy(original), data))


@pytest.mark.full
@pytest.mark.parametrize("tampering", TAMPERINGS)
@settings(SAMPLE, max_examples=60)
@given(data=st.data())
async def test_tampering_anywhere_is_found(
    original_log: tuple[Log, list[Document]], tampering: Tampering, data: st.DataObject
) -> None:
    log, original = original_log
    await assert_tampering_is_found(log, original, tampering(copy.deepcopy(original), data))


def _sorted(rows: list[Document]) -> list[Document]:
    # MongoDB sorts booleans after all numbers.
    numbered = [row for row in rows if isinstance(row.get("sequence"), int) and not isinstance(row["sequence"], bool)]
    return sorted(numbered, key=lambda row: int(row["sequence"]))


@pytest.mark.parametrize("later", [0, 1, 5])
async def test_removed_newest_entries_are_found_after_more_appends(log: Log, later: int) -> None:
    await log.append(LENGTH)
    await log.rewrite((await log.documents())[:-2])

    await log.append(later)

    assert await log.broken_at() == LENGTH - 1


@pytest.mark.parametrize("is_removed", [True, False])
async def test_an_altered_or_removed_signed_head_is_found(log: Log, is_removed: bool) -> None:
    await log.append(LENGTH)
    heads, key = log.database["audit_heads"], {"tenant_id": log.tenant_id}
    if is_removed:
        await heads.delete_one(key)
    else:
        rows = (await log.documents())[:-2]
        await log.rewrite(rows)
        await heads.update_one(key, {"$set": {"sequence": rows[-1]["sequence"], "hash": rows[-1]["hash"]}})

    assert await log.broken_at() == (LENGTH if is_removed else LENGTH - 2)


async def test_a_restored_old_log_is_found_by_a_recorded_head(log: Log) -> None:
    heads = log.database["audit_heads"]
    await log.append(3)
    rows, note = await log.documents(), await heads.find_one({"tenant_id": log.tenant_id})
    await log.append(3)
    expected = await log.verified()

    await log.rewrite(rows)
    await heads.replace_one({"tenant_id": log.tenant_id}, note or {})

    assert await log.broken_at() is None
    assert await log.broken_at(expected) == 4
    await log.append(5)
    assert await log.broken_at(expected) == 6


async def test_an_entry_of_another_history_of_the_log_is_found(log: Log) -> None:
    heads = log.database["audit_heads"]
    await log.append(3)
    rows, note = await log.documents(), await heads.find_one({"tenant_id": log.tenant_id})
    await log.append(2)
    other = await log.documents()
    await log.rewrite(rows)
    await heads.replace_one({"tenant_id": log.tenant_id}, note or {})
    await log.append(2)

    await log.rewrite([*rows, other[3], (await log.documents())[4]])

    assert await log.broken_at() == 5


async def test_a_replaced_key_still_verifies_its_entries(log: Log) -> None:
    await log.append(3)
    replaced = AuditSigner(f"another-{KEY} {KEY}")
    with pytest.raises(ChainBroken):
        await verify(log.store, AuditSigner(f"another-{KEY}"), log.tenant_id)

    await log.append(3, Audit(log.store, replaced))

    assert (await verify(log.store, replaced, log.tenant_id)).sequence == 6
    assert await log.broken_at() is not None
    await log.append(audit=Audit(log.store, replaced))
    assert (await verify(log.store, replaced, log.tenant_id)).sequence == 7
