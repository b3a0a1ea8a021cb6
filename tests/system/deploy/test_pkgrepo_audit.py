"""`pkgrepo audit`: operator commands are recorded, logs are exported, and changes are detected."""

import getpass
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pymongo import AsyncMongoClient

from common.auth.signing import API_TOKEN_PATTERN
from deploy.local.folder import Addresses
from deploy.operator.stores import StoreAddresses
from deploy.operator.tenants import OperatorAudit, open_operator_audit
from tests.support.factories import KEY, make_tenant
from tests.support.processes.pkgrepo_command import pkgrepo_commands
from tests.support.system.services import Services, bearer

OPERATOR = f"operator/{getpass.getuser()}"


@dataclass(frozen=True)
class Command:
    """`pkgrepo` with the settings of running services, and the database."""

    environment: dict[str, str]
    mongo: AsyncMongoClient[dict[str, Any]]
    record: OperatorAudit

    async def run(self, *commands: Sequence[str], answer: str = "", **environment: str) -> list[tuple[int, str]]:
        return await pkgrepo_commands(*commands, answer=answer, **{**self.environment, **environment})

    async def done(self, *commands: Sequence[str], answer: str = "") -> list[str]:
        """Run commands that must succeed. Returns their outputs."""
        results = await self.run(*commands, answer=answer)
        assert [result for result in results if result[0]] == []
        return [output for _, output in results]


def _lines(output: str) -> list[dict[str, Any]]:
    decoder, lines, place = json.JSONDecoder(), [], 0
    while place < len(output):
        line, place = decoder.raw_decode(output, place)
        lines.append(line)
        place += 1
    return lines


@pytest.fixture
async def command(services: Services, mongo_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Command]:
    """The command on databases with indexes."""
    environment = {"MONGO_URL": mongo_url, "REDIS_URL": redis_url, "AUDIT_KEY": KEY, "INSTALLERS": str(tmp_path)}
    where = StoreAddresses(Addresses("", mongo_url, redis_url), None, SecretStr(KEY))
    async with AsyncMongoClient[dict[str, Any]](mongo_url) as mongo, open_operator_audit(where) as record:
        yield Command(environment, mongo, record)


@pytest.fixture
async def tenant_id(services: Services, command: Command) -> str:
    """A tenant whose log has three entries."""
    tenant = make_tenant()
    await services.operator.tenants.create(tenant)
    for name in ("helga", "erika", "maria"):
        await command.record.add(tenant.tenant_id, "user_create", username=name)
    return tenant.tenant_id


async def test_the_audit_log_records_each_operator_command(command: Command) -> None:
    tenant_id, password = make_tenant().tenant_id, "--password-stdin"
    outputs = await command.done(
        ("tenant", "create", tenant_id, "--max-clients", "7"),
        ("tenant", "edit", tenant_id, "--max-clients", "none", "--allowed-networks", "127.0.0.1,::1"),
        ("tenant", "edit", tenant_id, "--max-clients", "8", "--allowed-networks", "127.0.0.1,::1"),
        ("user", "create", tenant_id, "helga", password),
        ("user", "password", tenant_id, "helga", password),
        ("user", "create", tenant_id, "erika", "--role", "auditor", "--role", "viewer"),
        ("user", "edit", tenant_id, "erika", "--role", "publisher"),
        ("user", "delete", tenant_id, "erika"),
        ("audit", "export", "--tenant", tenant_id),
        answer="a long password\nanother password\n",
    )

    entries = _lines(outputs[-1])

    assert {(entry["user"], entry["ip"], entry["status"]) for entry in entries} == {(OPERATOR, "pkgrepo", 200)}
    assert [(entry["operation"], entry["target"].get("username")) for entry in entries] == [
        ("tenant_create", None),
        ("tenant_edit", None),
        ("tenant_edit", None),
        ("user_create", "helga"),
        ("user_password", "helga"),
        ("user_create", "erika"),
        ("user_edit", "erika"),
        ("user_delete", "erika"),
    ]
    assert entries[0]["target"]["max_clients"] == "7"
    assert entries[1]["changes"] == {
        "max_clients": {"before": "7", "after": "none"},
        "allowed_networks": {"before": "", "after": "127.0.0.1,::1"},
    }
    assert entries[2]["changes"] == {"max_clients": {"before": "none", "after": "8"}}
    assert [entry["target"].get("role") for entry in entries[3:6]] == ["administrator", None, "viewer,auditor"]
    assert entries[6]["changes"] == {"role": {"before": "viewer,auditor", "after": "publisher"}}
    assert not any(text in str(entries) for text in ("a long password", "another password"))


async def test_a_new_scan_of_all_files_is_recorded(command: Command, tenant_id: str) -> None:
    uploads = command.mongo["upload"]["uploads"]
    record = {"tenant_id": tenant_id, "file_id": "f1", "status": "linked", "scan": {"state": "clean"}}
    await uploads.insert_one(record)
    outputs = await command.done(("scan", "--again", "--tenant", tenant_id), ("audit", "export", "--tenant", tenant_id))
    due = await uploads.find_one({"tenant_id": tenant_id})
    await uploads.delete_one({"tenant_id": tenant_id})
    assert outputs[0].startswith("1 files are due for a scan.")
    assert due is not None
    assert (due["scan"], "scan" in due["work"]) == ({"state": "clean"}, True)
    entry = _lines(outputs[1])[-1]
    assert (entry["user"], entry["operation"], entry["target"]) == (OPERATOR, "scan_again", {"files": "1"})


async def test_the_audit_log_records_the_commands_about_tokens(
    command: Command, tenant_id: str, services: Services
) -> None:
    name, packages = "[/red]", "Acme[x64]*"  # The list shows both as they are.
    create = ("token", "create", tenant_id, name, "--role", "publisher", "--package", packages, "--network", "::1")
    created, rotated, listed, _, output = await command.done(
        create,
        ("token", "rotate", tenant_id, name, "--overlap", "2"),
        ("token", "list", tenant_id),
        ("token", "delete", tenant_id, name),
        ("audit", "export", "--tenant", tenant_id),
    )

    texts = [shown.split()[-1] for shown in (created, rotated)]
    assert all(re.fullmatch(API_TOKEN_PATTERN, text) for text in texts)
    assert not any(text.split("_")[2] in listed + output for text in texts)
    assert {name, "publisher", packages, "::1", OPERATOR} <= set(listed.split())
    assert [(entry["operation"], entry["user"], entry["target"]) for entry in _lines(output)[-3:]] == [
        ("token_create", OPERATOR, {"name": name, "role": "publisher", "package_ids": packages, "networks": "::1"}),
        ("token_rotate", OPERATOR, {"name": name, "overlap_hours": "2"}),
        ("token_delete", OPERATOR, {"name": name}),
    ]


async def test_a_token_of_the_operator_counts_at_once(services: Services, command: Command) -> None:
    tenant = await services.tenant()
    (created,) = await command.done(("token", "create", tenant.tenant_id, "ci", "--role", "publisher"))
    pipeline = replace(tenant, headers=bearer(created.split()[-1]))
    assert (await pipeline.call("GET", "test")).status == 200
    await command.done(("token", "delete", tenant.tenant_id, "ci"))
    assert (await pipeline.call("GET", "test")).status == 401


async def test_a_deleted_tenant_stays_in_the_operators_log(command: Command, tenant_id: str) -> None:
    head = str(await command.record.store.newest(tenant_id))
    _, internal, own = await command.done(
        ("tenant", "delete", tenant_id),
        ("audit", "export", "--tenant", "internal"),
        ("audit", "export", "--tenant", tenant_id),
        answer=f"{tenant_id}\n",
    )

    entry = _lines(internal)[-1]

    assert (entry["operation"], entry["user"]) == ("tenant_delete", OPERATOR)
    assert entry["target"] == {"tenant_id": tenant_id, "audit_head": head}
    assert _lines(own) == []


async def test_a_command_without_an_audit_log_does_nothing(
    services: Services, command: Command, tenant_id: str
) -> None:
    before = await services.operator.tenants.find(tenant_id)
    results = await command.run(
        ("tenant", "edit", tenant_id, "--max-clients", "1"),
        ("tenant", "delete", tenant_id, "--yes"),
        ("user", "create", tenant_id, "helga"),
        AUDIT_KEY="",
    )

    assert [(status, "AUDIT_KEY" in output) for status, output in results] == [(1, True)] * 3
    assert await services.operator.tenants.find(tenant_id) == before
    assert await services.operator.users.list(tenant_id) == []


async def test_a_log_is_verified_against_an_earlier_head(command: Command, tenant_id: str) -> None:
    verify = ("audit", "verify", "--tenant", tenant_id)
    head = (await command.done(verify))[0].rsplit(" ", 1)[1]
    await command.record.add(tenant_id, "user_delete", username="helga")

    longer, removed = await command.run((*verify, "--expect", head), (*verify, "--expect", f"9:{'0' * 64}"))

    assert head.startswith("3:")
    assert (longer[0], f"{tenant_id}: 4 entries are valid, head 4:" in longer[1]) == (0, True), longer
    assert (removed[0], "entry 5 was removed" in removed[1]) == (1, True), removed


async def test_the_first_altered_entry_is_named(command: Command, tenant_id: str) -> None:
    altered = {"tenant_id": tenant_id, "sequence": {"$in": [2, 3]}}
    await command.mongo["auth"]["audit_log"].update_many(altered, {"$set": {"ip": "192.0.2.99"}})

    ((status, output),) = await command.run(("audit", "verify"))

    assert status == 1
    assert f"{tenant_id}: entry 2 is not as it was written" in output
    assert "internal: " in output


async def test_an_export_begins_at_the_given_time(command: Command, tenant_id: str) -> None:
    export = ("audit", "export", "--tenant", tenant_id)
    (output,) = await command.done(export)
    first, *_, third = _lines(output)
    assert (first["sequence"], third["sequence"]) == (1, 3)

    since, future = await command.done((*export, "--since", third["at"]), (*export, "--since", "2100-01-01"))

    assert third in _lines(since)
    assert _lines(future) == []
