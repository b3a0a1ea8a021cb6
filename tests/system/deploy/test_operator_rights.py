"""The operator's commands run with the rights of the user `operator` at the stores."""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pymongo import AsyncMongoClient

from deploy import local
from deploy.cluster.rights import MONGODB, OPERATOR
from tests.support.factories import KEY
from tests.support.servers.start import add_redis_users, mongod_with_users
from tests.support.servers.users import as_user
from tests.support.whole.services import PASSWORD, Services, all_services
from tests.support.whole.stories import add_package, package_id, publish
from tests.system.deploy.test_pkgrepo import pkgrepo


@dataclass(frozen=True)
class Installation:
    """Stores with the users of the services, which have served a tenant with a version."""

    folder: Path
    mongo_url: str  # root's
    redis_url: str
    tenant_id: str

    async def pkgrepo(self, *arguments: str, answer: str = "") -> str:
        """Run a command as the operator; its output. The command must succeed."""
        status, said = await pkgrepo(
            *arguments,
            answer=answer,
            MONGO_URL=as_user(self.mongo_url, OPERATOR),
            REDIS_URL=as_user(self.redis_url, OPERATOR),
            INSTALLERS=str(self.folder / "installers"),
            AUDIT_KEY=KEY,
            CLIENT_TOKEN_KEY=KEY,
        )
        assert status == 0, said
        return said


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
    await installation.pkgrepo("tenant", "create", "acme")
    await installation.pkgrepo("user", "create", "acme", "helga", "--password-stdin", answer=f"{PASSWORD}\n")
    await installation.pkgrepo("user", "create", "acme", "hugo", "--password-stdin", answer=f"{PASSWORD}\n")
    await installation.pkgrepo("user", "password", "acme", "helga", "--password-stdin", answer=f"{PASSWORD} 2\n")
    await installation.pkgrepo("user", "delete", "acme", "hugo")
    await installation.pkgrepo("tenant", "edit", "acme", "--max-clients", "7")


@pytest.mark.parametrize("words", ["quota", "quota --repair", "scrub", "migrate --check", "migrate", "audit verify"])
async def test_a_command_of_maintenance_runs(installation: Installation, words: str) -> None:
    await installation.pkgrepo(*words.split())


async def test_the_audit_log_is_exported(installation: Installation) -> None:
    assert "add_package" in await installation.pkgrepo("audit", "export", "--tenant", installation.tenant_id)


async def test_a_tenant_is_exported_and_imported(installation: Installation, tmp_path: Path) -> None:
    # The services of the tests hash at lower costs, and an import refuses such hashes.
    await installation.pkgrepo(
        "user", "password", installation.tenant_id, "admin", "--password-stdin", answer=f"{PASSWORD}\n"
    )
    await installation.pkgrepo("export", installation.tenant_id, str(tmp_path / "archive"))
    await installation.pkgrepo("tenant", "delete", installation.tenant_id, "--yes")
    await installation.pkgrepo("import", str(tmp_path / "archive"))
    assert installation.tenant_id in await installation.pkgrepo("tenant", "list")


async def test_a_backup_is_restored_where_no_service_is_connected(installation: Installation, tmp_path: Path) -> None:
    backups = str(tmp_path / "backups")
    assert "is a backup" in await installation.pkgrepo("backup", backups)
    async with AsyncMongoClient[dict[str, object]](installation.mongo_url) as client:
        for database in MONGODB[OPERATOR]:
            await client.drop_database(database)
    for installer in (installation.folder / "installers").iterdir():
        installer.rename(tmp_path / installer.name)
    said = await installation.pkgrepo("restore", backups)
    assert "is restored" in said
    assert "MongoDB does not say who is connected" not in said
    assert installation.tenant_id in await installation.pkgrepo("tenant", "list")
