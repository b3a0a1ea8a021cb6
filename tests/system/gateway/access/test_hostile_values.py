"""Hostile values in every field of every operation are rejected, or stored and shown unchanged."""

import json
import unicodedata
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from gateway.operations import Operation
from tests.support.api import Answer
from tests.support.system.commands import CommandRecorder
from tests.support.system.fields import all_fields_of, fields_of, names_in_document
from tests.support.system.forms import CHUNK, TRANSFER, UPLOADS, WITH_FIELDS, WRITES, multipart, own_form, send_form
from tests.support.system.raw_http import send_raw
from tests.support.system.seed import SeedData, seed_tenant, title
from tests.support.system.services import Api, Services
from tests.support.tables import every_cell, sampled

TEXTS = {
    "a NUL": "a\0b",
    "a line": "a\r\nb",
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
RANGES = (
    "*",
    "bytes */4",
    "bytes -1-3/4",
    "bytes 3-0/4",
    "bytes 0-4/4",
    "bytes +0-3/4",
    "bytes 0_0-3/4",
    "bytes \xef\xbc\x90-3/4",
    f"bytes 0-3/{10**30}",
    "bytes 0-0/0",
    "chunks 0-3/4",
    "bytes 0-3/4, bytes 0-3/4",
)


@pytest.fixture(scope="module")
async def seed_data(services: Services) -> SeedData:
    """A tenant that tests may extend."""
    return await seed_tenant(await services.tenant())


@sampled(11)
async def test_a_value_that_the_document_forbids_is_rejected(
    every: int, guarded: tuple[SeedData, Mapping[str, str]]
) -> None:
    seed_data, before = guarded
    with every_cell() as cell:
        for row in WITH_FIELDS:
            cells = [(field, kind) for field in fields_of(row) for kind in TEXTS if not field.accepts(TEXTS[kind])]
            assert cells, title(row)
            for field, kind in cells[::every]:
                with cell(title(row), field.name, kind):
                    request: dict[str, Any] = {field.place: {field.name: TEXTS[kind]}}
                    answer = await send_form(row, seed_data, **request)
                    # The audit log may have entries of failed sign-ins with this name.
                    entries = answer.body if row.method == "GET" and answer.status == 200 else [{}]
                    is_shown = all(TEXTS[kind] in entry.values() for entry in entries)
                    assert is_shown or 400 <= answer.status < 500, answer.body
    assert await seed_data.view_without_audit() == before


def letters(row: Operation) -> dict[str, str]:
    """A different text with many letters for each field that accepts it."""
    texts = [(field, f"{LETTERS} {field.name}") for field in fields_of(row) if not field.is_secret]
    return {field.name: text for field, text in texts if field.accepts(text)}


async def test_text_is_stored_in_its_normal_form(seed_data: SeedData, commands: CommandRecorder) -> None:
    with every_cell() as cell:
        for row in filter(letters, WRITES):
            with commands.record() as watched:
                answer = await send_form(row, seed_data, data=letters(row))
            assert answer.status in {200, 201}, (title(row), answer.body)
            view = " ".join((await seed_data.view_without_audit()).values())
            for name, text in letters(row).items():
                normal = unicodedata.normalize("NFC", text)
                with cell(title(row), name):
                    assert normal in watched.strings()
                    assert json.dumps(normal)[1:-1] in view


def foreign_names(row: Operation, names: set[str]) -> list[str]:
    """The names that are no fields of an operation, however they are spelled, and no parts of its address."""
    own = {field.name.casefold() for field in all_fields_of(row)} | {part.strip("{}") for part in row.parts}
    return [name for name in sorted(names) if name.casefold() not in own]


@sampled(11)
async def test_a_field_of_another_operation_is_refused(every: int, services: Services) -> None:
    seed_data = await seed_tenant(await services.tenant())
    names = {field.name for row in WRITES for field in fields_of(row)}
    with every_cell() as cell:
        async with seed_data.assert_unchanged(log=False):
            for row in WRITES:
                for name in foreign_names(row, names)[::every]:
                    with cell(title(row), name):
                        answer = await send_whole(row, seed_data, {name: "1"})
                        assert (answer.status, answer.body["code"]) == (400, "invalid_field")
                        assert answer.body["detail"].startswith(f"{name}: is no field of this operation; ")


async def test_fields_of_records_reach_no_database(services: Services, commands: CommandRecorder) -> None:
    with commands.record() as furnishing:
        seed_data = await seed_tenant(await services.tenant())
    names = names_in_document() | furnishing.names()  # The names of all stored fields are included.
    for row in [*WRITES, *UPLOADS]:
        marker = f"foreign{uuid4().hex}"
        with commands.record() as watched:
            answer = await send_whole(row, seed_data, dict.fromkeys(foreign_names(row, names), marker))
        assert answer.status == (200 if row in UPLOADS else 400), (title(row), answer.body)
        assert watched.containing(marker) == []
        assert marker not in f"{answer.body}{answer.headers}"


async def send_whole(row: Operation, seed_data: SeedData, more: Mapping[str, str]) -> Answer:
    """Call an operation with all required fields and others."""
    chunk, transfer = (CHUNK, TRANSFER) if row in UPLOADS else (b"", {})
    headers, body = multipart({**own_form(row, seed_data), **more}, more=chunk)
    return await seed_data.send(row, headers={**headers, **transfer}, data=body)


async def test_a_chunk_with_hostile_headers_is_rejected_without_a_file(each: Api, services: Services) -> None:
    gateway, _, prefix = each.base_url.removeprefix("http://").partition("/")
    headers, body = multipart({}, more=CHUNK)
    length = {"Content-Length": str(len(body))}
    before = set(services.installers.parent.rglob("*"))
    heads = [{"X-File-ID": text} for text in FILE_IDS] + [{"Content-Range": text} for text in RANGES]
    for head in heads:
        all_headers = {**each.headers, **headers, **length, **TRANSFER, **head}
        answer = await send_raw(f"http://{gateway}", "POST", f"/{prefix}/upload_package_version", all_headers, body)
        assert answer.status == 400, head
    assert set(services.installers.parent.rglob("*")) == before
