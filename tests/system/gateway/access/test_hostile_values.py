"""Hostile values in fields and addresses are rejected, or stored and shown unchanged; a database evaluates none."""

import json
import re
import unicodedata
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gateway.operations import OPERATIONS, Operation, is_value
from tests.support.system.commands import CommandRecorder, RecordedCommands
from tests.support.system.fields import all_fields_of, fields_of
from tests.support.system.forms import (
    CHUNK,
    OF_PROVIDERS,
    TRANSFER,
    UPLOADS,
    WITH_FIELDS,
    WRITES,
    multipart,
    own_form,
    send_form,
    send_whole,
)
from tests.support.system.gateways import single_gateway
from tests.support.system.safe_headers import check_no_injection
from tests.support.system.seed import SeedData, has_path_values, seed_tenant, segments, title
from tests.support.system.services import Api, Services
from tests.support.tables import every_cell, sampled

TEXTS = {
    "a NUL": "a\0b",
    "a line": "a\r\nX-Injected: 1",
    "a delete": "a\x7fb",
    "a control of the second set": "a\x85b",
    "a line separator": "a\u2028b",
    "a turn to the left": "a\u202eb",
    "an isolate": "a\u2066b",
    "a flood of marks": "a" + "\u0301" * 20_000,
    "below zero": "-1",
    "2 to the 31": str(2**31),
    "2 to the 63": str(2**63),
    "10 to the 30": str(10**30),
    "an exponent": "1e3",
    "a base": "0x1",
    "a sign": "+1",
    "an underscore": "1_0",
    "a fraction": "1.5",
    "digits of another script": "\u0661",
    "wide digits": "\uff11",
    "no number": "NaN",
}
# Letters of many scripts, and texts that a database or a page could interpret.
LETTERS = "$tenant_id o\u0308\u00f6 \u65e5\u672c \u0639 \U0001f9f0 {$ne} <b>'`%00\\"
FILE_IDS = (
    "",
    ".",
    "..",
    "../../x",
    "a/b",
    "a\\b",
    "%2e%2e%2fx",
    "x" * 300,
    "a b",
    "\xd0\xb0",  # a letter that looks like a Latin one
    "~a",
    "a\xff",  # invalid as text
)
RANGES = ("*", "bytes 0-4/4", "bytes \xef\xbc\x90-3/4")  # `test_content_range` has more


@pytest.fixture(scope="module")
async def seed_data(services: Services) -> SeedData:
    """A tenant that tests may extend."""
    return await seed_tenant(await services.tenant())


@pytest.fixture
async def at_single(seed_data: SeedData, services: Services, redis_url: str) -> AsyncIterator[SeedData]:
    """The same tenant at a single-tenant gateway."""
    async with single_gateway(services, redis_url, seed_data.api) as single:
        yield replace(seed_data, api=single)


@sampled(11, complete=3)
async def test_a_value_that_the_document_forbids_is_rejected(every: int, owner: SeedData) -> None:
    with every_cell() as cell:
        for row in WITH_FIELDS:
            cells = [(field, kind) for field in fields_of(row) for kind in TEXTS if not field.accepts(TEXTS[kind])]
            assert cells, title(row)
            for field, kind in cells[::every]:
                with cell(title(row), field.name, kind):
                    request: dict[str, Any] = {field.place: {field.name: TEXTS[kind]}}
                    answer = await send_form(row, owner, **request)
                    check_no_injection(answer)
                    # The audit log may have entries of failed sign-ins with this name.
                    entries = answer.body if row.method == "GET" and answer.status == 200 else [{}]
                    is_shown = all(TEXTS[kind] in entry.values() for entry in entries)
                    assert is_shown or 400 <= answer.status < 500, answer.body


def letters(row: Operation) -> dict[str, str]:
    """A different text with many letters for each field that accepts it."""
    texts = [(field, f"{LETTERS} {field.name}") for field in fields_of(row) if not field.is_secret]
    return {field.name: text for field, text in texts if field.accepts(text)}


async def test_text_is_stored_in_its_normal_form(seed_data: SeedData, commands: CommandRecorder) -> None:
    with every_cell() as cell:
        for row in (row for row in WRITES if letters(row) and row.name not in OF_PROVIDERS):
            with commands.record() as watched:
                answer = await send_form(row, seed_data, data=letters(row))
            assert answer.status in {200, 201}, (title(row), answer.body)
            view = " ".join((await seed_data.view()).values())
            for name, text in letters(row).items():
                normal = unicodedata.normalize("NFC", text)
                with cell(title(row), name):
                    assert normal in watched.strings()
                    assert json.dumps(normal)[1:-1] in view


def foreign_names(row: Operation, names: set[str]) -> list[str]:
    """The names that are no fields of an operation, however they are spelled, and no parts of its address."""
    own = {field.name.casefold() for field in all_fields_of(row)} | {part.strip("{}") for part in row.parts}
    return [name for name in sorted(names) if name.casefold() not in own]


async def test_a_field_of_another_operation_is_refused(owner: SeedData) -> None:
    names = {field.name for row in WRITES for field in fields_of(row)}
    with every_cell() as cell:
        for row in WRITES:
            for name in foreign_names(row, names)[::25]:
                with cell(title(row), name):
                    answer = await send_whole(row, owner, **{name: "1"})
                    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
                    assert answer.body["detail"].startswith(f"{name}: is no field of this operation; ")


async def test_unknown_fields_of_an_upload_reach_no_database(seed_data: SeedData, commands: CommandRecorder) -> None:
    (row,), marker = UPLOADS, f"foreign{uuid4().hex}"
    names = {field.name for other in WRITES for field in fields_of(other)} | {"tenant_id", "_id", "uploader"}
    with commands.record() as watched:
        answer = await send_whole(row, seed_data, **dict.fromkeys(foreign_names(row, names), marker))
    assert answer.status == 200, answer.body
    assert watched.containing(marker) == []
    assert marker not in f"{answer.body}{answer.headers}"


async def test_a_chunk_with_hostile_headers_is_rejected_without_a_file(tenant: Api, services: Services) -> None:
    headers, body = multipart({}, more=CHUNK)
    length = {"Content-Length": str(len(body))}
    before = set(services.installers.parent.rglob("*"))
    heads = [{"X-File-ID": text} for text in FILE_IDS] + [{"Content-Range": text} for text in RANGES]
    for head in heads:
        all_headers = {**headers, **length, **TRANSFER, **head}
        answer = await tenant.call_raw("POST", f"{tenant.path}/upload_package_version", all_headers, body)
        assert answer.status == 400, head
    assert set(services.installers.parent.rglob("*")) == before


INJECTIONS = (
    '{{"$ne": "{0}"}}',
    '{{"$where": "{0}"}}',
    "$where{0}",
    "$tenant_id{0}",
    "' || '{0}'=='{0}",
)
NAMES = ("{0}[$where]", "{0}[]", "{0}.$ne", "{0}.{1}", "$where", "$set", "{1}.$", "tenant_id[$ne]", "_id[$exists]")
DRIVERS_OWN = {"$db", "$clusterTime", "$readPreference", "$timestamp"}
SERVICES = ("common", "auth_service", "catalog_service", "client_registry", "upload_service")


def injections(row: Operation, marker: str) -> Iterator[dict[str, Any]]:
    """Requests with a database expression as a value or a name."""
    fields = fields_of(row)
    for field in fields:
        for name, text in [*((field.name, text) for text in INJECTIONS), (f"{field.name}[$ne]", "{0}")]:
            yield {"without": field.name, field.place: {name: text.format(marker)}}
    for place in {field.place for field in fields}:
        yield {place: {name.format(field.name, marker): marker for name in NAMES for field in fields}}


@sampled(11, complete=5)  # Each field has six cells: no step may divide that.
async def test_fields_are_never_evaluated_as_expressions(
    every: int, at_single: SeedData, commands: CommandRecorder, services: Services
) -> None:
    with every_cell() as cell:
        for row in WITH_FIELDS:
            marker = uuid4().hex
            username = own_form(row, at_single).get("username")
            is_login = row.name in {"login", "sign_in"}
            with commands.record() as watched:
                for request in list(injections(row, marker))[::-every]:  # The last case is in the sample.
                    if is_login:  # which is throttled after a few failures
                        for name in ("address:127.0.0.1", f"user:{at_single.api.tenant_id}:{username}"):
                            await services.failures.forget(name)
                    with cell(title(row), request):
                        answer = await send_form(row, at_single, **request)
                        assert answer.status < 500, answer.body
                        assert "not_authenticated" not in str(answer.body)
                        if is_login and request.get("without") in {"username", "password"}:
                            assert answer.status in {400, 401}
            with cell(title(row), "commands"):
                check_plain(watched, marker)


async def test_addresses_are_never_evaluated_as_expressions(owner: SeedData, commands: CommandRecorder) -> None:
    with every_cell() as cell:
        for row in filter(has_path_values, OPERATIONS):
            marker = uuid4().hex
            with commands.record() as watched:
                for name, text in product([part.strip("{}") for part in row.parts if is_value(part)], INJECTIONS):
                    with cell(title(row), name, text):
                        path = segments(row, {**owner.parts, name: text.format(marker)})
                        answer = await owner.api.call(row.method, *path, data=own_form(row, owner))
                        is_empty = row.is_winget and answer.status == 204
                        assert 400 <= answer.status < 500 or is_empty, answer.body
            with cell(title(row), "commands"):
                check_plain(watched, marker)


def check_plain(watched: RecordedCommands, marker: str) -> None:
    """Check that commands have only known names, with the caller's values as text."""
    assert watched.without_tenant == []
    names = watched.names()
    assert {name for name in names if name.startswith("$")} - own_operators() == set()
    assert [name for name in names if marker in name] == []
    assert watched.evaluated(marker) == []


@cache
def own_operators() -> set[str]:
    """The names in the services' own commands, including those of the driver."""
    root = Path(__file__).parents[4]
    code = " ".join(file.read_text("utf-8") for service in SERVICES for file in (root / service).rglob("*.py"))
    return {*re.findall(r"[\"'](\$[a-zA-Z]+)[\"']", code), *DRIVERS_OWN}
