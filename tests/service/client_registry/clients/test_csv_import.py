"""Clients from a CSV file, over HTTP."""

import asyncio
import re
from uuid import UUID

from common.auth.internal_tokens import Caller
from tests.support.api import Answer
from tests.support.factories import make_caller, make_tenant
from tests.support.services.registry import Registry
from tests.support.tables import each

FORMULA = re.compile(r"[=+\-@\t\r]")


async def import_file(registry: Registry, caller: Caller, text: str | bytes, skip_existing: str = "0") -> Answer:
    query = {"rings": "pilot,everyone", "skip_existing": skip_existing}
    content = text.encode() if isinstance(text, str) else text
    return await registry.call(caller, "POST", "import_clients", params=query, data=content)


async def names(registry: Registry, caller: Caller) -> list[str]:
    return [client["client_name"] for client in (await registry.call(caller, "GET", "get_clients")).body]


async def test_each_client_of_a_file_gets_a_token(registry: Registry) -> None:
    caller = make_caller()

    answer = await import_file(registry, caller, "client_name,ring,enabled\npc-1,pilot,\npc-2,,0\n")

    assert (answer.status, answer.body["skipped"]) == (201, 0)
    first, second = answer.body["clients"]
    assert [first["client_name"], second["client_name"]] == ["pc-1", "pc-2"]
    assert UUID(first["auth_token"]) != UUID(second["auth_token"])
    assert await registry.identify(caller, first["auth_token"]) == first["client_id"]
    assert await registry.identify(caller, second["auth_token"]) is None
    rings = [(await registry.client(caller, each["client_id"]))["ring"] for each in (first, second)]
    assert rings == ["pilot", ""]


@each(
    "text",
    [
        "client_name\npc-1\n",
        "\ufeffclient_name\r\npc-1\r\n",
        "Client_Name;ring\npc-1;pilot\n",
        '"ring","client_name"\n\n"pilot"," pc-1 "\n',
        "client_name\tenabled\npc-1\ttrue",
    ],
)
async def test_files_of_spreadsheets_are_read(registry: Registry, text: str) -> None:
    caller = make_caller()
    answer = await import_file(registry, caller, text)

    assert answer.status == 201, answer.body
    assert await names(registry, caller) == ["pc-1"]


async def test_every_bad_row_is_named_and_none_is_imported(registry: Registry) -> None:
    caller = make_caller()
    rows = [
        "good-1",
        "no host,pilot",
        "pc-1,nowhere",
        "pc-2,pilot,maybe",
        "GOOD-1",
        "pc-3,pilot,1,more",
        "=cmd()",
        ",pilot",
    ]

    answer = await import_file(registry, caller, "\n".join(["client_name,ring,enabled", *rows]))

    assert (answer.status, answer.body["code"]) == (400, "rows_refused")
    assert answer.body["params"] == {
        "row_host_name": "3, 8, 9",
        "row_twice": "6",
        "row_ring": "4",
        "row_enabled": "5",
        "row_columns": "7",
    }
    assert answer.body["detail"].startswith("No client was imported. Not a host name: line 3, 8, 9.")
    assert await names(registry, caller) == []


@each(
    ("text", "reason"),
    [
        ("", "no_csv_header"),
        ("pc-1\npc-2\n", "no_csv_header"),
        ("client_name,ip\npc-1,192.0.2.1\n", "no_csv_header"),
        ("client_name,client_name\npc-1,pc-2\n", "no_csv_header"),
        ("client_name\n", "number_of_rows"),
        ("client_name\n" + "".join(f"pc-{n}\n" for n in range(10_001)), "number_of_rows"),
        ("client_name\n" + "x" * 200_000, "not_csv"),
    ],
)
async def test_another_file_is_refused(registry: Registry, text: str, reason: str) -> None:
    answer = await import_file(registry, make_caller(), text)

    assert (answer.status, answer.body["params"]["reason"]) == (400, reason)


async def test_a_file_in_another_encoding_names_its_lines(registry: Registry) -> None:
    answer = await import_file(registry, make_caller(), "client_name\npc-1\nbüro\n".encode("cp1252"))

    assert answer.body["params"] == {"row_host_name": "3"}


async def test_an_existing_client_refuses_the_file_or_is_left_out(registry: Registry) -> None:
    caller, text = make_caller(), "client_name,ring\nPC-1,pilot\npc-2,pilot\n"
    added = await registry.add_client(caller, "pc-1")

    refused = await import_file(registry, caller, text)
    before = await names(registry, caller)
    imported = await import_file(registry, caller, text, skip_existing="1")

    assert (refused.status, refused.body["params"]) == (400, {"row_exists": "2"})
    assert before == ["pc-1"]
    assert [client["client_name"] for client in imported.body["clients"]] == ["pc-2"]
    assert imported.body["skipped"] == 1
    assert (await registry.client(caller, added["client_id"]))["ring"] == ""
    assert await registry.identify(caller, added["auth_token"]) == added["client_id"]


async def test_a_file_above_the_limit_of_clients_adds_none(registry: Registry) -> None:
    caller = make_caller(make_tenant(max_clients=3))
    await registry.add_client(caller, "pc-1")

    refused = await import_file(registry, caller, "client_name\npc-2\npc-3\npc-4\n")
    before = await names(registry, caller)
    fitting = await import_file(registry, caller, "client_name\npc-2\npc-3\n")

    assert (refused.status, refused.body["code"]) == (403, "client_limit_exceeded")
    assert refused.body["detail"] == "The tenant may have 3 clients and has 1; the file adds 3."
    assert before == ["pc-1"]
    assert fitting.status == 201
    assert (await registry.call(caller, "POST", "add_client", data={"client_name": "pc-5"})).status == 403


async def test_two_imports_at_once_never_exceed_the_limit(registry: Registry) -> None:
    caller = make_caller(make_tenant(max_clients=30))
    files = ["client_name\n" + "".join(f"pc-{letter}-{n}\n" for n in range(10)) for letter in "abcde"]

    answers = await asyncio.gather(*(import_file(registry, caller, text) for text in files))

    added = [answer for answer in answers if answer.status == 201]
    assert len(added) == 3
    assert {answer.status for answer in answers} == {201, 403}
    assert len(await names(registry, caller)) == 30


async def test_a_file_of_10000_clients_is_imported(registry: Registry) -> None:
    caller = make_caller()

    answer = await import_file(registry, caller, "client_name\n" + "".join(f"pc-{n:05}\n" for n in range(10_000)))

    assert answer.status == 201
    assert len({client["auth_token"] for client in answer.body["clients"]}) == 10_000
    assert len(await names(registry, caller)) == 10_000


async def test_no_value_of_an_import_is_a_formula(registry: Registry) -> None:
    caller = make_caller()
    for name in ("=1+1", "+1", "-1", "@sum"):
        assert (await import_file(registry, caller, f"client_name\n{name}\n")).status == 400, name
    answer = await import_file(registry, caller, "client_name\n_pc\n0pc\n")
    values = [value for client in answer.body["clients"] for value in client.values()]
    assert [value for value in values if FORMULA.match(value)] == []


async def test_the_audit_log_gets_the_number_and_the_first_names(registry: Registry) -> None:
    caller = make_caller()
    text = "client_name\n" + "".join(f"pc-{n:02}\n" for n in range(60))

    answer = await import_file(registry, caller, text)

    target = answer.audit_target
    assert (target["clients"], target["skipped"]) == ("60", "0")
    assert target["client_name"].split(",") == [f"pc-{n:02}" for n in range(50)]
    assert not any(client["auth_token"] in str(answer.audit_target) for client in answer.body["clients"])
