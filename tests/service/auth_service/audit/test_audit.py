"""The audit log: writing, listing and export."""

import hmac
import json
from dataclasses import replace
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
    await record(auth, caller, "edit_package", changes={"name": ["Launcher", "Launcher"], "description": ["", "x"]})

    [entry] = await auth.audit_log(caller)

    assert entry["changes"] == {"description": {"before": "", "after": "x"}}


async def test_an_edit_without_effect_is_an_entry_without_changes(auth: Auth, caller: Caller) -> None:
    await record(auth, caller, "edit_package", changes={"name": ["Launcher", "Launcher"]})

    [entry] = await auth.audit_log(caller)

    assert (entry["operation"], entry["changes"]) == ("edit_package", {})


@pytest.mark.parametrize("payload", ["", "\xff", "{}", "[]", '{"operation": 1}', "{", "null"])
async def test_an_invalid_entry_is_refused(auth: Auth, caller: Caller, payload: str) -> None:
    answer = await auth.call(caller, "POST", "record_audit", data=payload.encode("latin-1"))
    assert (answer.status, answer.body["code"]) == (400, "invalid_request")
    assert (await read(auth, caller)).body == []


async def test_the_newest_entry_comes_first(auth: Auth, caller: Caller) -> None:
    for number in range(3):
        await record(auth, caller, f"operation_{number}")

    assert operations(await auth.audit_log(caller)) == ["operation_2", "operation_1", "operation_0"]


async def test_a_page_has_the_requested_length_and_the_next_continues(auth: Auth, caller: Caller) -> None:
    for number in range(5):
        await record(auth, caller, f"operation_{number}")

    pages, before = [], 9
    while page := await auth.audit_log(caller, limit=2, before=before):
        pages.append(operations(page))
        before = page[-1]["sequence"]

    assert pages == [["operation_4", "operation_3"], ["operation_2", "operation_1"], ["operation_0"]]


async def test_a_page_has_a_hundred_entries_by_default(auth: Auth, caller: Caller) -> None:
    for _ in range(101):
        await record(auth, caller)

    assert len(await auth.audit_log(caller)) == 100
    assert len(await auth.audit_log(caller, limit=1000)) == 101


async def test_the_log_of_one_user_can_be_read(auth: Auth, caller: Caller) -> None:
    await record(auth, caller, "one", user="ada")
    await record(auth, caller, "two", user="bob")

    assert operations(await auth.audit_log(caller, user="ada")) == ["one"]
    assert await auth.audit_log(caller, user="nobody") == []


async def test_the_log_of_one_operation_can_be_read(auth: Auth, caller: Caller) -> None:
    await record(auth, caller, "add_user", user="ada")
    await record(auth, caller, "delete_user", user="ada")

    assert operations(await auth.audit_log(caller, operation="delete_user")) == ["delete_user"]


async def test_every_condition_has_to_hold(auth: Auth, caller: Caller) -> None:
    for user in ("ada", "bob"):
        for operation in ("add_user", "delete_user"):
            await record(auth, caller, operation, user=user)
    newest = (await auth.audit_log(caller))[0]["sequence"]

    entries = await auth.audit_log(caller, user="bob", operation="add_user", before=newest)

    assert [(entry["user"], entry["operation"]) for entry in entries] == [("bob", "add_user")]


async def test_a_tenant_reads_its_own_log_only(auth: Auth, caller: Caller) -> None:
    other = make_caller()
    await record(auth, other, "theirs")
    await record(auth, caller, "ours")

    assert operations(await auth.audit_log(caller)) == ["ours"]
    assert operations(await lines(auth, caller)) == ["ours"]


async def test_an_entry_that_is_sent_again_is_stored_once(auth: Auth, caller: Caller) -> None:
    for _ in range(2):
        await record(auth, caller, id="e" * 32)

    assert len(await auth.audit_log(caller)) == 1


async def test_entries_of_all_replicas_form_one_chain(auth: Auth, caller: Caller) -> None:
    for api in (auth.api, auth.replica, auth.api):
        await record(replace(auth, api=api), caller)

    newest, second, first = await auth.audit_log(caller)
    assert [entry["sequence"] for entry in (first, second, newest)] == [1, 2, 3]
    assert (second["previous"], newest["previous"]) == (first["hash"], second["hash"])


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
    assert operations(await lines(auth, caller, before="3", limit="1")) == ["operation_1"]
    assert await lines(auth, caller, user="nobody") == []


async def test_the_log_of_a_period_can_be_read(auth: Auth, caller: Caller) -> None:
    for day in (1, 2, 3):
        await record(auth, caller, f"day_{day}", at=f"2026-01-0{day}T12:00:00+00:00")

    assert operations(await auth.audit_log(caller, since="2026-01-02T12:00:00Z")) == ["day_3", "day_2"]
    assert operations(await auth.audit_log(caller, until="2026-01-02T13:00:00+01:00")) == ["day_1"]
    assert operations(await auth.audit_log(caller, since="2026-01-02", until="2026-01-03")) == ["day_2"]


async def test_entries_are_filtered_by_outcome(auth: Auth, caller: Caller) -> None:
    for operation, status in (("add_user", 201), ("login", 401), ("edit_settings", 200), ("add_client", 500)):
        await record(auth, caller, operation, status=status)

    assert operations(await auth.audit_log(caller, outcome="done")) == ["edit_settings", "add_user"]
    assert operations(await auth.audit_log(caller, outcome="refused")) == ["add_client", "login"]
    assert operations(await auth.audit_log(caller)) == ["add_client", "edit_settings", "login", "add_user"]


@pytest.mark.parametrize("name", ["since", "until"])
@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "0001-01-01T00:00:00+23:59", "2026", "\0", "9" * 99])
async def test_an_invalid_time_is_refused(auth: Auth, caller: Caller, name: str, text: str) -> None:
    answer = await read(auth, caller, **{name: text})

    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, name)


async def test_an_unknown_format_is_refused(auth: Auth, caller: Caller) -> None:
    assert (await read(auth, caller, format="json")).body == []
    assert (await read(auth, caller, format="xml")).body["code"] == "invalid_field"


async def test_a_damaged_row_does_not_hide_other_entries(auth: Auth, caller: Caller) -> None:
    for operation in ("one", "two", "three"):
        await record(auth, caller, operation)
    mongo: AsyncIOMotorClient[Document] = AsyncIOMotorClient(auth.settings.mongo_url)
    rows = mongo[auth.settings.database]["audit_log"]
    await rows.update_one({"tenant_id": caller.tenant_id, "operation": "two"}, {"$set": {"target": 7}})
    mongo.close()

    assert operations(await auth.audit_log(caller)) == ["three", "one"]
    assert operations(await lines(auth, caller)) == ["three", "one"]


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "1e2", "0x10", "a", "\u0661", "9" * 30, " 1"])
async def test_a_page_has_one_to_a_thousand_entries(auth: Auth, caller: Caller, limit: str) -> None:
    answer = await read(auth, caller, limit=limit)

    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, "limit")


@pytest.mark.parametrize("before", ["nonsense", "0x1", "-1", "1.0", "9" * 30, "\0", "\u0661"])
async def test_a_page_begins_after_an_entry(auth: Auth, caller: Caller, before: str) -> None:
    answer = await read(auth, caller, before=before)

    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, "before")


@pytest.mark.parametrize(
    "query", [{"user": "a" * 129}, {"operation": "a" * 65}, {"user": "a\0"}, {"operation": "\u202e"}], ids=str
)
async def test_conditions_are_text(auth: Auth, caller: Caller, query: dict[str, str]) -> None:
    answer = await read(auth, caller, **query)

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")


@pytest.mark.parametrize("query", [{"user[$ne]": ""}, {"user": '{"$ne": ""}'}, {"operation": "$where"}], ids=str)
async def test_a_condition_is_no_database_expression(auth: Auth, caller: Caller, query: dict[str, str]) -> None:
    await record(auth, caller)

    answer = await read(auth, caller, **query)

    assert answer.status == 200
    assert len(answer.body) == ("user[$ne]" in query)  # An unknown parameter is ignored.
