"""The audit log: writing, listing and export."""

import hmac
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from motor.motor_asyncio import AsyncIOMotorClient

from common.auth.internal_tokens import Caller
from common.mongo import Document
from tests.support.api import Answer
from tests.support.factories import KEY, make_caller
from tests.support.services.auth import Auth
from tests.support.tables import each

REQUEST = "ab" * 16
FIELDS = [
    *("tenant_id", "sequence", "id", "at", "user", "ip", "operation", "target", "changes", "status", "request_id"),
    *("previous", "hash"),
]


@pytest.fixture
def caller() -> Caller:
    return make_caller()


async def record(auth: Auth, caller: Caller, operation: str = "add_package", **entry: Any) -> None:
    data = {
        "id": uuid4().hex,
        "at": datetime.now(UTC).isoformat(),
        "operation": operation,
        "user": "admin",
        "ip": "192.0.2.1",
        "target": {},
        "changes": {},
        "status": 200,
        "request_id": REQUEST,
        **entry,
    }
    answer = await auth.call(caller, "POST", "record_audit", json=data)
    assert (answer.status, answer.body) == (200, {})


async def read(auth: Auth, caller: Caller, **query: str) -> Answer:
    return await auth.call(caller, "GET", "get_audit_log", params=query)


async def lines(auth: Auth, caller: Caller, **query: str) -> list[dict[str, Any]]:
    """The log as JSON lines."""
    answer = await read(auth, caller, format="jsonl", **query)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/jsonl")
    return [json.loads(line) for line in answer.body.splitlines()]


def operations(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["operation"] for entry in entries]


async def test_hidden_characters_are_recorded_as_escapes(auth: Auth, caller: Caller) -> None:
    """U+202E and the like would show another id, name or value than the recorded one."""
    hidden = "a\u202eexe.b\u200f\ufeff\u2066\x1b[2J\u2028c"
    seen = r"a\u202eexe.b\u200f\ufeff\u2066\x1b[2J\u2028c"
    changes = {"description": [hidden, "One\nTwo\tThree"], hidden: ["", "x"]}
    await record(auth, caller, user=hidden, target={"package_id": hidden, hidden: "文書 ß"}, changes=changes)

    [entry] = await auth.audit_log(caller)

    assert (entry["user"], entry["target"]) == (seen, {"package_id": seen, seen: "文書 ß"})
    assert entry["changes"] == {
        "description": {"before": seen, "after": "One\nTwo\tThree"},
        seen: {"before": "", "after": "x"},
    }


async def test_an_entry_is_read_as_it_was_written(auth: Auth, caller: Caller) -> None:
    at = "2026-01-31T09:30:00.123456+00:00"
    changes = {"description": ["", "x"]}
    await record(auth, caller, target={"package_id": "Acme.Trap", "a.b$c": "1"}, changes=changes, status=201, at=at)

    [entry] = await auth.audit_log(caller)

    assert list(entry) == FIELDS
    assert (entry["user"], entry["ip"], entry["status"]) == ("admin", "192.0.2.1", 201)
    assert (entry["operation"], entry["request_id"]) == ("add_package", REQUEST)
    assert entry["target"] == {"package_id": "Acme.Trap", "a.b$c": "1"}
    assert entry["changes"] == {"description": {"before": "", "after": "x"}}
    assert entry["at"] == "2026-01-31T09:30:00.123+00:00"
    assert (entry["tenant_id"], entry["sequence"], entry["previous"]) == (caller.tenant_id, 1, "0" * 64)


async def test_an_entry_lists_only_the_fields_that_changed(auth: Auth, caller: Caller) -> None:
    for changes in ({"description": ["", "x"]}, {}):
        await record(auth, caller, "edit_package", changes={"name": ["Launcher", "Launcher"], **changes})

    assert [entry["changes"] for entry in await auth.audit_log(caller)] == [
        {},
        {"description": {"before": "", "after": "x"}},
    ]


@each("payload", ["", "\xff", "{}", "[]", '{"operation": 1}', "{", "null"])
async def test_an_invalid_entry_is_refused(auth: Auth, caller: Caller, payload: str) -> None:
    answer = await auth.call(caller, "POST", "record_audit", data=payload.encode("latin-1"))
    assert (answer.status, answer.body["code"]) == (400, "invalid_request")
    assert (await read(auth, caller)).body == []


async def test_a_page_has_the_requested_length_and_the_next_continues(auth: Auth, caller: Caller) -> None:
    for number in range(5):
        await record(auth, caller, f"operation_{number}")

    pages, before = [], 9
    while page := await auth.audit_log(caller, limit=2, before=before):
        pages.append(operations(page))
        before = page[-1]["sequence"]

    assert pages == [["operation_4", "operation_3"], ["operation_2", "operation_1"], ["operation_0"]]


async def test_shown_entries_are_the_signed_entries(auth: Auth, caller: Caller) -> None:
    await record(auth, caller, target={"name": "é"})

    [entry] = await lines(auth, caller)
    sealed = {name: value for name, value in entry.items() if name != "hash"}
    canonical = json.dumps(sealed, sort_keys=True, separators=(",", ":"))

    assert entry["hash"] == hmac.new(KEY.encode(), canonical.encode(), "sha256").hexdigest()


async def test_the_whole_log_is_exported_as_json_lines(auth: Auth, caller: Caller) -> None:
    for number in range(101):
        await record(auth, caller, f"operation_{number}", target={"text": "x" * 2000})

    entries = await lines(auth, caller)

    assert operations(entries) == [f"operation_{number}" for number in reversed(range(101))]
    assert entries == await auth.audit_log(caller, limit=1000)
    assert entries[:100] == await auth.audit_log(caller)
    assert operations(await lines(auth, caller, before="3", limit="1")) == ["operation_1"]
    assert await lines(auth, caller, user="nobody") == []


async def test_a_damaged_row_does_not_hide_other_entries(auth: Auth, caller: Caller) -> None:
    for operation in ("one", "two", "three"):
        await record(auth, caller, operation)
    mongo: AsyncIOMotorClient[Document] = AsyncIOMotorClient(auth.settings.mongo_url)
    rows = mongo[auth.settings.database]["audit_log"]
    await rows.update_one({"tenant_id": caller.tenant_id, "operation": "two"}, {"$set": {"target": 7}})
    mongo.close()

    assert operations(await auth.audit_log(caller)) == ["three", "one"]
    assert operations(await lines(auth, caller)) == ["three", "one"]


@pytest.mark.parametrize("query", [{"user[$ne]": ""}, {"user": '{"$ne": ""}'}, {"operation": "$where"}], ids=str)
async def test_a_condition_is_no_database_expression(auth: Auth, caller: Caller, query: dict[str, str]) -> None:
    await record(auth, caller)

    answer = await read(auth, caller, **query)

    assert answer.status == 200
    assert len(answer.body) == ("user[$ne]" in query)  # An unknown parameter is ignored.


@each(
    ("query", "expected"),
    [
        ({}, [4, 3, 2, 1]),
        ({"user": "ada"}, [2, 1]),
        ({"user": "nobody"}, []),
        ({"operation": "add_user"}, [3, 1]),
        ({"operation": "login,add_user"}, [4, 3, 2, 1]),
        ({"operation": ",login,"}, [4, 2]),
        ({"operation": ","}, []),
        ({"user": "bob", "operation": "add_user", "before": "4"}, [3]),
        ({"since": "2026-01-03T12:00:00Z"}, [4, 3]),
        ({"until": "2026-01-02T13:00:00+01:00"}, [1]),
        ({"since": "2026-01-02", "until": "2026-01-03"}, [2]),
        ({"outcome": "done"}, [2, 1]),
        ({"outcome": "refused"}, [4, 3]),
    ],
)
async def test_entries_meet_every_condition(auth: Auth, query: dict[str, str], expected: list[int]) -> None:
    caller = make_caller()
    entries = [("ada", "add_user", 201), ("ada", "login", 200), ("bob", "add_user", 400), ("bob", "login", 500)]
    for day, (user, operation, status) in enumerate(entries, start=1):
        at = f"2026-01-0{day}T12:00:00+00:00"
        await record(auth, caller, operation, user=user, status=status, at=at)

    assert [entry["sequence"] for entry in await auth.audit_log(caller, **query)] == expected


TIMES = ("yesterday", "2026-13-01", "0001-01-01T00:00:00+23:59", "2026", "\0", "9" * 99)
INVALID: dict[str, Sequence[str]] = {
    "since": TIMES,
    "until": TIMES,
    "limit": ("0", "1001", "-1", "1e2", "0x10", "a", "\u0661", "9" * 30, " 1"),
    "before": ("nonsense", "0x1", "-1", "1.0", "9" * 30, "\0", "\u0661"),
    "user": ("a" * 129, "a\0"),
    "operation": ("a" * 2001, "\u202e"),
    "format": ("xml",),
}


@each(("name", "text"), [(name, text) for name, texts in INVALID.items() for text in texts])
async def test_an_invalid_condition_is_refused(auth: Auth, caller: Caller, name: str, text: str) -> None:
    answer = await read(auth, caller, **{name: text})

    assert (answer.status, answer.body["code"], answer.body["detail"].partition(":")[0]) == (400, "invalid_field", name)
