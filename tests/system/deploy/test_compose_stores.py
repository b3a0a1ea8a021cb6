"""The stores in containers: rights of their users, and the upgrade from one user. Needs a container engine."""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_urlsafe
from typing import Any
from urllib.parse import urlsplit

import aio_pika
import pytest
from aiohttp import encode_basic_auth
from aiormq.exceptions import ProbableAuthenticationError
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError

from common.settings import load
from deploy.cluster.owners import STORES_USER
from deploy.cluster.rights import MONGODB, RABBITMQ, REDIS, Credential, OtherStores
from deploy.cluster.secrets import ClusterSecrets
from deploy.operator.schemas import KNOWN
from tests.support.deployment.compose import SERVICES, ComposeProject, run_compose, run_compose_of_release_0_1_0
from tests.support.servers.rights import excess_mongodb_rights, excess_rabbitmq_rights, excess_redis_rights
from tests.support.system.publishing import Published, add_package, download, package_id, publish, version_of
from tests.support.system.services import Api

PASSWORD = token_urlsafe(24)  # of the single user in release 0.1.0


@pytest.fixture(scope="module")
async def project() -> AsyncIterator[ComposeProject]:
    async with run_compose(gateway=1) as running:
        yield running


def credential(project: ComposeProject, store: str, user: str) -> Credential:
    [entry] = [row for row in ClusterSecrets(project.secrets).credentials(store) if row.user == user]
    return entry


def url(project: ComposeProject, store: str, user: str) -> str:
    return project.store_url(store, str(credential(project, store, user)))


@pytest.mark.parametrize("user", MONGODB)
async def test_mongodb_limits_a_user_to_its_databases(project: ComposeProject, user: str) -> None:
    assert await excess_mongodb_rights(url(project, "mongodb", user), user) == []


@pytest.mark.parametrize("user", REDIS)
async def test_redis_limits_a_user_to_its_keys_and_commands(project: ComposeProject, user: str) -> None:
    assert await excess_redis_rights(url(project, "redis", user), user) == []


@pytest.mark.parametrize("user", RABBITMQ)
async def test_rabbitmq_limits_a_user_to_its_exchanges_and_queues(project: ComposeProject, user: str) -> None:
    assert await excess_rabbitmq_rights(url(project, "rabbitmq", user), user) == []


@pytest.mark.parametrize("user", RABBITMQ)
async def test_rabbitmq_lets_no_user_manage_the_broker(project: ComposeProject, user: str) -> None:
    login = credential(project, "rabbitmq", user)
    management = f"http://{urlsplit(url(project, 'rabbitmq', user)).hostname}:15672/api/overview"
    headers = {"Authorization": encode_basic_auth(login.name, login.password)}
    async with project.session.get(management, headers=headers) as answer:
        assert answer.status == 401


async def test_redis_rejects_a_caller_without_a_user(project: ComposeProject) -> None:
    address = urlsplit(url(project, "redis", "gateway")).hostname
    client: Any = Redis.from_url(f"redis://{address}:6379")
    async with client:
        with pytest.raises(AuthenticationError):
            await client.ping()


@dataclass(frozen=True)
class Upgraded:
    """A project that was upgraded from release 0.1.0, with a version published before."""

    project: ComposeProject
    api: Api
    published: Published


@pytest.fixture(scope="module")
async def upgraded() -> AsyncIterator[Upgraded]:
    async with run_compose_of_release_0_1_0(write_old_secrets) as before:
        [api] = await before.signed_in()
        name = package_id()
        await add_package(api, name)
        published = await publish(api, name, content=os.urandom(3 << 20))
        await before.compose("stop", *SERVICES)
        await make_databases_older(before)
        project = replace(before, files=())
        await project.up()
        [api] = await project.signed_in()
        yield Upgraded(project, api, published)


def write_old_secrets(folder: Path) -> None:
    """Write the secrets of release 0.1.0."""
    one_user = {
        "mongo_url": f"mongodb://pkgrepo:{PASSWORD}@mongodb:27017/?replicaSet=rs0&authSource=admin",
        "redis_url": f"redis://:{PASSWORD}@redis:6379",
        "rabbitmq_url": f"amqp://pkgrepo:{PASSWORD}@rabbitmq:5672/",
    }
    ClusterSecrets(folder, load(OtherStores, **one_user)).generate()
    files = {
        "mongodb/password": PASSWORD,
        "mongodb/members": "members" * 10,
        "redis/password": PASSWORD,
        "redis/password.conf": f"requirepass {PASSWORD}\n",
        "rabbitmq/password": PASSWORD,
        "rabbitmq/user.conf": f"default_user = pkgrepo\ndefault_pass = {PASSWORD}\n",
    }
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(mode=0o700, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(text)
        for path in (file.parent, file):
            os.chown(path, STORES_USER, STORES_USER)


async def make_databases_older(project: ComposeProject) -> None:
    """Undo the migrations since release 0.1.0."""
    async with AsyncMongoClient[dict[str, Any]](project.store_url("mongodb", f"pkgrepo:{PASSWORD}")) as client:
        for database in KNOWN:
            await client[database]["schema"].delete_many({})
        await client["upload"]["uploads"].update_many({}, {"$unset": {"home": ""}})
        entry = {"tenant_id": "main", "operation": "add_user", "at": datetime(2026, 1, 1, tzinfo=UTC), "user": "ada"}
        rest: dict[str, Any] = {"ip": "192.0.2.1", "status": 200, "request_id": "", "target": []}
        await client["auth"]["audit"].insert_one({**entry, **rest})


async def test_an_upgrade_keeps_what_was_published(upgraded: Upgraded) -> None:
    version = await version_of(upgraded.api, upgraded.published)
    assert await download(upgraded.api, version["INSTALLER_URL"]) == upgraded.published.content


async def test_an_upgrade_migrates_every_database(upgraded: Upgraded) -> None:
    assert "The databases are up to date." in await upgraded.project.run_operator("migrate", "--check")
    async with AsyncMongoClient[dict[str, Any]](url(upgraded.project, "mongodb", "operator")) as client:
        assert await client["upload"]["uploads"].count_documents({"home": {"$exists": False}}) == 0


@pytest.mark.parametrize("user", MONGODB)
async def test_an_upgrade_gives_each_service_its_own_user(upgraded: Upgraded, user: str) -> None:
    assert await excess_mongodb_rights(url(upgraded.project, "mongodb", user), user) == []


async def test_an_upgrade_disables_the_old_mongodb_user(upgraded: Upgraded) -> None:
    url = upgraded.project.store_url("mongodb", f"pkgrepo:{PASSWORD}")
    async with AsyncMongoClient[dict[str, Any]](url) as client:
        with pytest.raises(OperationFailure, match="Authentication failed"):
            await client.admin.command("usersInfo")


async def test_an_upgrade_disables_the_old_redis_password(upgraded: Upgraded) -> None:
    client: Any = Redis.from_url(upgraded.project.store_url("redis", f":{PASSWORD}"))
    async with client:
        with pytest.raises(AuthenticationError):
            await client.ping()


async def test_an_upgrade_disables_the_old_rabbitmq_user(upgraded: Upgraded) -> None:
    with pytest.raises(ProbableAuthenticationError):
        await aio_pika.connect(upgraded.project.store_url("rabbitmq", f"pkgrepo:{PASSWORD}"))


async def test_an_upgrade_can_be_repeated(upgraded: Upgraded) -> None:
    secrets = upgraded.project.secrets
    before = {file: file.read_bytes() for file in secrets.rglob("*") if file.is_file()}
    await upgraded.project.up()
    assert {file: file.read_bytes() for file in secrets.rglob("*") if file.is_file()} == before
