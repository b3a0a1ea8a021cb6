"""Operator commands with the rights of the user `operator` at the stores."""

import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pymongo import AsyncMongoClient

from deploy.cluster.rights import MONGODB, OPERATOR
from deploy.local import servers as local
from tests.support.factories import KEY
from tests.support.processes.backup import passphrase_option
from tests.support.processes.pkgrepo_command import pkgrepo_commands
from tests.support.servers.start import add_redis_users, mongod_with_users
from tests.support.servers.users import as_user
from tests.support.system.publishing import add_package, package_id, publish
from tests.support.system.services import PASSWORD, Services, all_services


@dataclass(frozen=True)
class Installation:
    """Stores with the users of the services, and with a published version."""

    folder: Path
    mongo_url: str  # of root
    redis_url: str
    tenant_id: str

    async def pkgrepo(self, *commands: Sequence[str], answer: str = "") -> list[str]:
        """Run commands as the operator. All must succeed. Returns their outputs."""
        results = await pkgrepo_commands(
            *commands,
            answer=answer,
            MONGO_URL=as_user(self.mongo_url, OPERATOR),
            REDIS_URL=as_user(self.redis_url, OPERATOR),
            INSTALLERS=str(self.folder / "installers"),
            AUDIT_KEY=KEY,
            CLIENT_TOKEN_KEY=KEY,
        )
        assert [result for result in results if result[0]] == []
        return [output for _, output in results]


@pytest.fixture(scope="module")
async def folder() -> AsyncIterator[Path]:
    with TemporaryDirectory(prefix="pkgrepo-") as place:
        yield Path(place)


@pytest.fixture(scope="module")
async def installation(folder: Path, rabbitmq_url: str) -> AsyncIterator[Installation]:
    for name in ("mongodb", "redis", "services"):
        (folder / name).mkdir()
    async with mongod_with_users(folder / "mongodb") as mongo_url, local.redis(folder / "redis") as redis_url:
        await add_redis_users(redis_url)
        async with all_services(folder / "services", mongo_url, redis_url, rabbitmq_url, as_user) as services:
            tenant_id = await published(services)
        yield Installation(folder / "services", mongo_url, redis_url, tenant_id)


async def published(services: Services) -> str:
    """A tenant with a package and a version."""
    api = await services.tenant()
    name = package_id()
    await add_package(api, name)
    await publish(api, name, content=os.urandom(1000))
    return api.tenant_id


async def test_tenants_and_users_are_created_and_edited(installation: Installation) -> None:
    password = "--password-stdin"
    await installation.pkgrepo(
        ("tenant", "create", "acme"),
        ("user", "create", "acme", "helga", password),
        ("user", "create", "acme", "hugo", password),
        ("user", "password", "acme", "helga", password),
        ("user", "edit", "acme", "hugo", "--role", "viewer"),
        ("user", "delete", "acme", "hugo"),
        ("token", "create", "acme", "ci", "--role", "publisher"),
        ("token", "rotate", "acme", "ci"),
        ("token", "list", "acme"),
        ("token", "delete", "acme", "ci"),
        ("tenant", "edit", "acme", "--max-clients", "7"),
        answer=f"{PASSWORD}\n{PASSWORD}\n{PASSWORD} 2\n",
    )


async def test_the_maintenance_commands_run(installation: Installation) -> None:
    commands = ("quota", "quota --repair", "scrub", "migrate --check", "migrate", "audit verify")
    await installation.pkgrepo(*(command.split() for command in commands))


async def test_the_audit_log_is_exported(installation: Installation) -> None:
    (output,) = await installation.pkgrepo(("audit", "export", "--tenant", installation.tenant_id))
    assert "add_package" in output


async def test_a_tenant_is_exported_and_imported(installation: Installation, tmp_path: Path) -> None:
    tenant_id, archive, passphrase = installation.tenant_id, str(tmp_path / "archive"), passphrase_option(tmp_path)
    *_, tenants, tokens = await installation.pkgrepo(
        ("token", "create", tenant_id, "nightly", "--role", "publisher"),
        ("export", tenant_id, archive, *passphrase),
        ("tenant", "delete", tenant_id, "--yes"),
        ("import", archive, *passphrase),
        ("tenant", "list"),
        ("token", "list", tenant_id),
    )
    assert tenant_id in tenants
    assert "nightly" not in tokens  # It would count in two installations.


async def test_a_package_is_restored(installation: Installation, tmp_path: Path) -> None:
    await installation.pkgrepo(("backup", str(tmp_path)))
    async with AsyncMongoClient[dict[str, object]](installation.mongo_url) as client:
        tenant = {"tenant_id": installation.tenant_id}
        package = await client["catalog"]["packages"].find_one(tenant)
        assert package is not None
        for database, collection in (("catalog", "packages"), ("catalog", "versions"), ("upload", "uploads")):
            await client[database][collection].delete_many(tenant)
        name = str(package["package_id"])
        (output,) = await installation.pkgrepo(("package", "restore", installation.tenant_id, name, str(tmp_path)))
        assert f"{name} was restored from {tmp_path}/" in output
        assert await client["catalog"]["versions"].count_documents({**tenant, "state": "active"}) == 1


async def test_a_backup_is_restored_if_no_service_is_connected(installation: Installation, tmp_path: Path) -> None:
    backups = str(tmp_path / "backups")
    token = ("token", "create", installation.tenant_id, "nightly", "--role", "publisher")
    _, output = await installation.pkgrepo(token, ("backup", backups))
    assert "was created" in output
    async with AsyncMongoClient[dict[str, object]](installation.mongo_url) as client:
        recorded = await client["auth"]["backups"].find_one({})
        assert recorded is not None
        assert f"{backups}/{recorded['name']} was created" in output
        for database in MONGODB[OPERATOR]:
            await client.drop_database(database)
    for installer in (installation.folder / "installers").iterdir():
        installer.rename(tmp_path / installer.name)
    commands = (("restore", backups), ("tenant", "list"), ("token", "list", installation.tenant_id))
    restored, tenants, tokens = await installation.pkgrepo(*commands)
    assert "was restored" in restored
    assert "MongoDB does not say who is connected" not in restored
    assert installation.tenant_id in tenants
    assert "nightly" in tokens
