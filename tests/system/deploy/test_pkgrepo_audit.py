"""`pkgrepo audit`: what operators do is on record, a log is exported, and one that was tampered with is found."""

import getpass
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pymongo import AsyncMongoClient

from deploy.folder import Addresses
from deploy.places import Places
from deploy.record import Record, open_record
from tests.support.factories import KEY, make_tenant
from tests.support.whole.services import Services
from tests.system.deploy.test_pkgrepo import pkgrepo

OPERATOR = f"operator/{getpass.getuser()}"


@dataclass(frozen=True)
class Command:
    """`pkgrepo` beside services, with their settings in the environment, and the database that it works on."""

    environment: dict[str, str]
    mongo: AsyncMongoClient[dict[str, Any]]
    record: Record

    async def run(self, *arguments: str, answer: str = "", **environment: str) -> tuple[int | None, str]:
        return await pkgrepo(*arguments, answer=answer, **{**self.environment, **environment})

    async def done(self, *arguments: str, answer: str = "") -> str:
        status, said = await self.run(*arguments, answer=answer)
        assert status == 0, said
        return said

    async def export(self, tenant_id: str, *options: str) -> list[dict[str, Any]]:
        """The log, read from the standard output, in which nothing else is."""
        said = await self.done("audit", "export", "--tenant", tenant_id, *options)
        return _lines(said)

    async def tamper(self, tenant_id: str, sequence: int) -> None:
        log = self.mongo["auth"]["audit_log"]
        await log.update_one({"tenant_id": tenant_id, "sequence": sequence}, {"$set": {"ip": "192.0.2.99"}})


def _lines(said: str) -> list[dict[str, Any]]:
    decoder, found, place = json.JSONDecoder(), [], 0
    while place < len(said):
        line, place = decoder.raw_decode(said, place)
        found.append(line)
        place += 1
    return found


@pytest.fixture
async def command(services: Services, mongo_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Command]:
    """Beside services, whose indexes are made."""
    environment = {"MONGO_URL": mongo_url, "REDIS_URL": redis_url, "AUDIT_KEY": KEY, "INSTALLERS": str(tmp_path)}
    where = Places(Addresses("", mongo_url, redis_url), None, SecretStr(KEY))
    async with AsyncMongoClient[dict[str, Any]](mongo_url) as mongo, open_record(where) as record:
        yield Command(environment, mongo, record)


@pytest.fixture
async def tenant_id(services: Services, command: Command) -> str:
    """A tenant whose log has three entries."""
    made = make_tenant()
    await services.operator.tenants.create(made)
    for name in ("helga", "erika", "maria"):
        await command.record.add(made.tenant_id, "user_create", username=name)
    return made.tenant_id


async def test_what_an_operator_does_is_on_record(command: Command) -> None:
    tenant_id = make_tenant().tenant_id
    await command.done("tenant", "create", tenant_id, "--max-clients", "7")
    await command.done("tenant", "edit", tenant_id, "--max-clients", "none", "--allowed-networks", "127.0.0.1,::1")
    await command.done("user", "create", tenant_id, "helga", "--password-stdin", answer="a long password\n")
    await command.done("user", "password", tenant_id, "helga", "--password-stdin", answer="another password\n")
    await command.done("user", "create", tenant_id, "erika")
    await command.done("user", "delete", tenant_id, "erika")

    found = await command.export(tenant_id)

    assert {(entry["user"], entry["ip"], entry["status"]) for entry in found} == {(OPERATOR, "pkgrepo", 200)}
    assert [(entry["operation"], entry["target"].get("username")) for entry in found] == [
        ("tenant_create", None),
        ("tenant_edit", None),
        ("user_create", "helga"),
        ("user_password", "helga"),
        ("user_create", "erika"),
        ("user_delete", "erika"),
    ]
    assert found[0]["target"]["max_clients"] == "7"
    assert found[1]["changes"] == {
        "max_clients": {"before": "7", "after": "none"},
        "allowed_networks": {"before": "", "after": "127.0.0.1,::1"},
    }
    assert "password" not in str(found).replace("user_password", "")


async def test_an_operators_edit_records_only_the_settings_that_changed(command: Command, tenant_id: str) -> None:
    await command.done("tenant", "edit", tenant_id, "--max-clients", "7", "--allowed-networks", "127.0.0.1")
    await command.done("tenant", "edit", tenant_id, "--max-clients", "8", "--allowed-networks", "127.0.0.1")

    entry = (await command.export(tenant_id))[-1]

    assert entry["changes"] == {"max_clients": {"before": "7", "after": "8"}}


async def test_a_deleted_tenant_stays_in_the_operators_log(command: Command, tenant_id: str) -> None:
    head = str(await command.record.store.newest(tenant_id))
    await command.done("tenant", "delete", tenant_id, answer=f"{tenant_id}\n")

    entry = (await command.export("internal"))[-1]

    assert (entry["operation"], entry["user"]) == ("tenant_delete", OPERATOR)
    assert entry["target"] == {"tenant_id": tenant_id, "audit_head": head}
    assert await command.export(tenant_id) == []


@pytest.mark.parametrize(
    "arguments",
    [("tenant", "edit", "--max-clients", "1"), ("tenant", "delete", "--yes"), ("user", "create", "helga")],
)
async def test_nothing_is_done_where_it_cannot_be_recorded(
    services: Services, command: Command, tenant_id: str, arguments: tuple[str, ...]
) -> None:
    before = await services.operator.tenants.find(tenant_id)
    status, said = await command.run(*arguments[:2], tenant_id, *arguments[2:], AUDIT_KEY="")

    assert status == 1
    assert "AUDIT_KEY" in said
    assert await services.operator.tenants.find(tenant_id) == before
    assert await services.operator.users.list(tenant_id) == []


async def test_a_log_that_holds_says_its_head_and_is_held_against_it(command: Command, tenant_id: str) -> None:
    verify = ("audit", "verify", "--tenant", tenant_id)
    head = _head(await command.done(*verify))
    await command.record.add(tenant_id, "user_delete", username="helga")

    assert head.startswith("3:")
    assert f"{tenant_id}: 4 entries hold, head 4:" in await command.done(*verify, "--expect", head)
    status, said = await command.run(*verify, "--expect", f"9:{'0' * 64}")
    assert (status, "entry 5 was removed" in said) == (1, True)


async def test_the_first_entry_that_was_altered_is_named(command: Command, tenant_id: str) -> None:
    await command.tamper(tenant_id, 3)
    await command.tamper(tenant_id, 2)

    status, said = await command.run("audit", "verify")

    assert status == 1
    assert f"{tenant_id}: entry 2 is not as it was written" in said
    assert "internal: " in said


async def test_another_key_verifies_nothing(command: Command, tenant_id: str) -> None:
    status, said = await command.run("audit", "verify", "--tenant", tenant_id, AUDIT_KEY=f"not-{KEY}")

    assert (status, "entry 1 " in said) == (1, True)


async def test_an_export_begins_when_it_is_told_to(command: Command, tenant_id: str) -> None:
    first, *_, second = await command.export(tenant_id)

    assert second in await command.export(tenant_id, "--since", second["at"])
    assert await command.export(tenant_id, "--since", "2100-01-01") == []
    assert (first["sequence"], second["sequence"]) == (1, 3)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("verify", "--expect", f"1:{'0' * 64}"), "--tenant"),
        (("verify", "--tenant", "acme", "--expect", "1"), "--expect"),
        (("export", "--tenant", "acme", "--since", "yesterday"), "--since"),
    ],
)
async def test_what_makes_no_sense_is_said_in_one_line(
    command: Command, arguments: tuple[str, ...], reason: str
) -> None:
    status, said = await command.run("audit", *arguments)

    assert (status, said.startswith("pkgrepo: "), reason in said) == (1, True, True)


def _head(said: str) -> str:
    return said.rsplit(" ", 1)[1]
