"""Database expressions in fields and addresses are treated as text."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gateway.operations import OPERATIONS, Operation, is_value
from tests.support.system.commands import CommandRecorder, RecordedCommands
from tests.support.system.fields import fields_of
from tests.support.system.forms import WITH_FIELDS, WRITES, own_form, send_form
from tests.support.system.seed import SeedData, has_path_values, seed_tenant, segments, title
from tests.support.system.services import Services
from tests.support.tables import every_cell, sampled

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


@pytest.fixture(scope="module")
async def seed_data(services: Services) -> SeedData:
    """A tenant that the tests may change."""
    return await seed_tenant(await services.tenant())


def injections(row: Operation, marker: str) -> Iterator[dict[str, Any]]:
    """Requests with a database expression as a value or a name."""
    fields = fields_of(row)
    for field in fields:
        for name, text in [*((field.name, text) for text in INJECTIONS), (f"{field.name}[$ne]", "{0}")]:
            yield {"without": field.name, field.place: {name: text.format(marker)}}
    for place in {field.place for field in fields}:
        yield {place: {name.format(field.name, marker): marker for name in NAMES for field in fields}}


@sampled(11)
async def test_fields_are_never_evaluated_as_expressions(
    every: int, seed_data: SeedData, commands: CommandRecorder, services: Services
) -> None:
    with every_cell() as cell:
        for row in WITH_FIELDS:
            marker = uuid4().hex
            username = own_form(row, seed_data).get("username")
            is_login = row.name in {"login", "sign_in"}
            with commands.record() as watched:
                for request in list(injections(row, marker))[::-every]:  # The last case is in the sample.
                    if is_login:  # which is throttled after a few failures
                        for name in ("address:127.0.0.1", f"user:{seed_data.api.tenant_id}:{username}"):
                            await services.failures.forget(name)
                    with cell(title(row), request):
                        answer = await send_form(row, seed_data, **request)
                        assert answer.status < 500, answer.body
                        assert "not_authenticated" not in str(answer.body)
                        if is_login and request.get("without") in {"username", "password"}:
                            assert answer.status in {400, 401}
            with cell(title(row), "commands"):
                check_plain(watched, marker)


async def test_addresses_are_never_evaluated_as_expressions(
    guarded: tuple[SeedData, Mapping[str, str]], commands: CommandRecorder
) -> None:
    seed_data, before = guarded
    with every_cell() as cell:
        for row in filter(has_path_values, OPERATIONS):
            marker = uuid4().hex
            with commands.record() as watched:
                for name, text in product([part.strip("{}") for part in row.parts if is_value(part)], INJECTIONS):
                    with cell(title(row), name, text):
                        path = segments(row, {**seed_data.parts, name: text.format(marker)})
                        answer = await seed_data.api.call(row.method, *path, data=own_form(row, seed_data))
                        is_empty = row.is_winget and answer.status == 204
                        assert 400 <= answer.status < 500 or is_empty, answer.body
            with cell(title(row), "commands"):
                check_plain(watched, marker)
    assert await seed_data.view_without_audit() == before


async def test_every_query_to_a_database_begins_with_the_tenant(services: Services, commands: CommandRecorder) -> None:
    with commands.record() as watched:
        seed_data = await seed_tenant(await services.tenant())
        await seed_data.view_without_audit()
        for row in WRITES:
            answer = await seed_data.send(row, data=own_form(row, seed_data))
            assert answer.status < 500, (title(row), answer.body)
    assert {"find", "insert", "update", "delete", "tenant_id"} <= watched.names()
    assert watched.without_tenant == []


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
