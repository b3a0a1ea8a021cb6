"""One walk over all operations: each succeeds for a tenant beside another one whose objects have equal names."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from gateway.operations import Operation
from tests.support.api import Answer
from tests.support.samples.openapi import DOCUMENT, violations
from tests.support.system.commands import CommandRecorder, RecordedCommands
from tests.support.system.forms import OF_PROVIDERS, UPLOADS, WITH_BODY, WRITES, own_form, send_whole
from tests.support.system.safe_headers import check_safe
from tests.support.system.seed import READS, SeedData, seed_tenant, title
from tests.support.system.services import Services
from tests.support.tables import every_cell

BODIES = [row for row in WITH_BODY if row.name not in OF_PROVIDERS]
AUDITED = [row for row in WRITES if row.name not in OF_PROVIDERS]
# Deletions come last.
ROWS = [*READS, *[row for row in BODIES if row not in WRITES], *UPLOADS, *AUDITED]


@dataclass(frozen=True)
class Walk:
    """The last answer of each operation, the commands to the databases, and what another tenant could read."""

    answers: Mapping[Operation, Answer]
    commands: RecordedCommands
    before: Mapping[str, str]
    after: Mapping[str, str]


@pytest.fixture(scope="module")
async def walk(services: Services, commands: CommandRecorder) -> Walk:
    other = await seed_tenant(await services.tenant())
    before, answers = await other.view(), {}
    with commands.record() as recorded:
        twin = await seed_tenant(await services.tenant(), other.marker)
        for row in ROWS:
            answer = await call(row, twin)
            if answer.status >= 400:  # An earlier operation deleted or used a required object.
                twin = await seed_tenant(await services.tenant(), other.marker)
                answer = await call(row, twin)
            answers[row] = answer
    return Walk(answers, recorded, before, await other.view())


async def call(row: Operation, seed_data: SeedData) -> Answer:
    if row in WITH_BODY:
        return await send_whole(row, seed_data)
    return await seed_data.send(row, data=own_form(row, seed_data))


def test_every_operation_succeeds(walk: Walk) -> None:
    failed = {title(row): answer.body for row, answer in walk.answers.items() if answer.status >= 400}
    assert failed == {}
    assert walk.answers.keys() >= set(AUDITED)


def test_every_success_is_as_documented(walk: Walk) -> None:
    documented = {row: answer for row, answer in walk.answers.items() if f"/{row.path}" in DOCUMENT["paths"]}
    assert {title(row) for row in walk.answers.keys() - documented.keys()} == {"POST-sign_in"}
    with every_cell() as cell:
        for row, answer in documented.items():
            with cell(title(row)):
                assert differences(row, answer) == []


def differences(row: Operation, answer: Answer) -> list[str]:
    """How the status, the content type and the JSON of an answer differ from the document."""
    responses = DOCUMENT["paths"][f"/{row.path}"][row.method.lower()]["responses"]
    contents = responses.get(str(answer.status), {}).get("content", {"": None} if answer.status == 204 else {})
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    if kind not in contents:
        return [f"{answer.status} {kind}"]
    steps = ("paths", f"/{row.path}", row.method.lower(), "responses", str(answer.status), "content", kind, "schema")
    pointer = "/".join(step.replace("~", "~0").replace("/", "~1") for step in steps)
    return violations(f"#/{pointer}", answer.body) if kind.endswith("json") else []


def test_every_query_to_a_database_begins_with_the_tenant(walk: Walk) -> None:
    assert {"find", "insert", "update", "delete", "tenant_id"} <= walk.commands.names()
    assert walk.commands.without_tenant == []


def test_equal_names_in_two_tenants_are_separate_objects(walk: Walk) -> None:
    assert walk.after == walk.before


def test_every_success_has_the_security_headers(walk: Walk) -> None:
    with every_cell() as cell:
        for row, answer in walk.answers.items():
            with cell(title(row)):
                check_safe(answer)
