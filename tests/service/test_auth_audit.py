"""The audit log: what is written to it, and how it is read."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from common.caller import Caller
from tests.api import Answer
from tests.factories import make_caller
from tests.service.auth_fixtures import Auth, serving_auth

REQUEST = "ab" * 16


@pytest.fixture(scope="module")
async def auth(mongo_url: str, redis_url: str) -> AsyncIterator[Auth]:
    async with serving_auth(mongo_url, redis_url) as served:
        yield served


@pytest.fixture
def caller() -> Caller:
    return make_caller()


async def record(auth: Auth, caller: Caller, operation: str = "add_package", **entry: Any) -> None:
    told = {"operation": operation, "user": "admin", "ip": "192.0.2.1", "target": {}, "status": 200, **entry}
    answer = await auth.call(caller, "POST", "record_audit", json={"request_id": REQUEST, **told})
    assert (answer.status, answer.body) == (200, {})


async def read(auth: Auth, caller: Caller, **query: str) -> Answer:
    return await auth.call(caller, "GET", "get_audit_log", params=query)


def operations(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["operation"] for entry in entries]


async def test_an_entry_is_read_as_it_was_written(auth: Auth, caller: Caller) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    await record(auth, caller, target={"package_id": "Acme.Trap", "a.b$c": "1"}, status=201)

    [entry] = await auth.audit_log(caller)

    assert list(entry) == ["id", "at", "user", "ip", "operation", "target", "status", "request_id"]
    assert (entry["user"], entry["ip"], entry["status"]) == ("admin", "192.0.2.1", 201)
    assert (entry["operation"], entry["request_id"]) == ("add_package", REQUEST)
    assert entry["target"] == {"package_id": "Acme.Trap", "a.b$c": "1"}
    assert before <= datetime.fromisoformat(entry["at"]) <= datetime.now(UTC)


async def test_the_newest_entry_comes_first(auth: Auth, caller: Caller) -> None:
    for number in range(3):
        await record(auth, caller, f"operation_{number}")

    assert operations(await auth.audit_log(caller)) == ["operation_2", "operation_1", "operation_0"]


async def test_a_page_has_as_many_entries_as_asked_for_and_the_next_begins_after_it(auth: Auth, caller: Caller) -> None:
    for number in range(5):
        await record(auth, caller, f"operation_{number}")

    pages, before = [], ""
    while page := await auth.audit_log(caller, limit=2, before=before):
        pages.append(operations(page))
        before = page[-1]["id"]

    assert pages == [["operation_4", "operation_3"], ["operation_2", "operation_1"], ["operation_0"]]


async def test_a_hundred_entries_are_a_page_where_nothing_is_said(auth: Auth, caller: Caller) -> None:
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
    newest = (await auth.audit_log(caller))[0]["id"]

    found = await auth.audit_log(caller, user="bob", operation="add_user", before=newest)

    assert [(entry["user"], entry["operation"]) for entry in found] == [("bob", "add_user")]


async def test_a_tenant_reads_its_own_log_only(auth: Auth, caller: Caller) -> None:
    other = make_caller()
    await record(auth, other, "theirs")
    await record(auth, caller, "ours")
    theirs = (await auth.audit_log(other))[0]["id"]

    assert operations(await auth.audit_log(caller)) == ["ours"]
    assert operations(await auth.audit_log(caller, before=theirs)) == []


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "1e2", "0x10", "a", "\u0661", "9" * 30, " 1"])
async def test_a_page_has_from_one_to_a_thousand_entries(auth: Auth, caller: Caller, limit: str) -> None:
    answer = await read(auth, caller, limit=limit)

    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, "limit")


@pytest.mark.parametrize("before", ["nonsense", "0" * 23, "0" * 25, "g" * 24, "abcdefghijkl", "\0", "é" * 24])
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
async def test_no_condition_is_an_expression(auth: Auth, caller: Caller, query: dict[str, str]) -> None:
    await record(auth, caller)

    answer = await read(auth, caller, **query)

    assert answer.status == 200
    assert len(answer.body) == ("user[$ne]" in query)  # a parameter that is unknown is ignored
