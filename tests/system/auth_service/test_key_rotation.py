"""Rotation of every key in a running cluster, without a failed request."""

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from yarl import URL

from auth_service.settings import AuthSettings
from catalog_service.settings import CatalogSettings
from client_registry.settings import RegistrySettings
from common.auth.signing import Keys
from common.errors import Unavailable, UpstreamProblem
from common.service_client.client import open_service
from common.settings import ServiceSettings
from deploy.local.folder import SERVICES, new_key, write_secret
from tests.support.factories import make_caller
from tests.support.processes.cluster import Cluster, run_cluster
from tests.support.servers.stores import private_stores
from tests.support.system.publishing import add_package, package_id, publish, version_of
from tests.support.system.services import Api
from tests.support.wait import until
from upload_service.settings import UploadSettings

KEYS = [f"{name}_key" for name in SERVICES]
NAMES = (*KEYS, "session_key", "download_key", "client_token_key")

SETTINGS: dict[str, type[ServiceSettings]] = {
    "auth_service": AuthSettings,
    "catalog_service": CatalogSettings,
    "upload_service": UploadSettings,
    "client_registry": RegistrySettings,
}
OPERATIONS = {
    "auth_service": "find_tenant",
    "catalog_service": "get_packages",
    "upload_service": "storage_usage",
    "client_registry": "client_usage",
}


def key_files(folder: Path) -> dict[str, str]:
    """Write a separate key file for every purpose. Returns the environment for the services."""
    folder.mkdir()
    for name in NAMES:
        write_secret(folder / name, new_key())
    files = {f"{name.upper()}_FILE": str(folder / name) for name in NAMES}
    return {**files, "INTERNAL_KEY": "", "SESSION_KEY": "", "DOWNLOAD_KEY": "", "CLIENT_TOKEN_KEY": ""}


def read_keys(folder: Path) -> dict[str, list[str]]:
    return {name: (folder / name).read_text().split() for name in NAMES}


async def rotate(folder: Path, *options: str, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deploy.cli.main", "keys", "rotate", "--folder", str(folder), *options),
        stdout=PIPE,
        stderr=STDOUT,
        env={**os.environ, **environment},
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


class Callers:
    """An administrator, a client and a download, with tokens and links that were signed earlier."""

    def __init__(self, api: Api, client_token: str, link: str) -> None:
        self.api, self.client_token, self.link = api, client_token, link

    @classmethod
    async def renew(cls, api: Api, client_token: str) -> "Callers":
        """Callers with a new session and a new download address of the same file."""
        api = await api.signed_in()
        packages = (await api.call("POST", "get_packages")).body
        version = (await api.call("GET", "get_specific_package_version", packages[0]["VERSIONS_UID"][0])).body
        return cls(api, client_token, version["INSTALLER_URL"])

    async def answers(self) -> dict[str, int]:
        """The current status for each caller."""
        client = self.api.anonymous()
        async with self.api.session.get(URL(self.link, encoded=True)) as response:
            download = response.status
        return {
            "administrator": (await self.api.call("POST", "get_packages")).status,
            "server information": (await self.api.call("GET", "server_information")).status,
            "client": (await client.call("POST", "get_packages", data={"auth_token": self.client_token})).status,
            "download": download,
        }


@asynccontextmanager
async def repeat_calls(callers: Callers) -> AsyncIterator[list[Mapping[str, int]]]:
    """Repeat the calls concurrently within the block. Yields the answers other than 200."""
    failed: list[Mapping[str, int]] = []

    async def call() -> None:
        while True:
            answers = await callers.answers()
            if set(answers.values()) != {200}:
                failed.append(answers)

    tasks = [asyncio.create_task(call()) for _ in range(4)]
    try:
        yield failed
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results), results


async def create_callers(cluster: Cluster) -> tuple[Callers, str]:
    """Create a tenant with callers, and a client that never calls. Returns the callers, and its id and token."""
    api = await cluster.services.tenant(client_authentication=True)
    name = package_id()
    await add_package(api, name)
    link = (await version_of(api, await publish(api, name)))["INSTALLER_URL"]
    client, silent = [(await api.call("POST", "add_client", data={"client_name": n})).body for n in ("pc", "silent")]
    callers = Callers(api, client["auth_token"], link)
    assert set((await callers.answers()).values()) == {200}
    return callers, f"{silent['client_id']}/{silent['auth_token']}"


@pytest.fixture(scope="module")
async def cluster_with_keys() -> AsyncIterator[tuple[Cluster, Path]]:
    """A cluster with separate keys for every purpose, and the folder of the keys."""
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        keys = Path(folder, "keys")
        async with (
            private_stores(Path(folder)) as stores,
            run_cluster(stores, key_files(keys), gateway=2, client_registry=2) as cluster,
        ):
            yield cluster, keys


@pytest.mark.full  # tests/system/deploy/test_pkgrepo.py rotates the keys of `pkgrepo up`.
async def test_no_request_fails_while_every_key_is_replaced(cluster_with_keys: tuple[Cluster, Path]) -> None:
    cluster, keys = cluster_with_keys
    before, silent = await create_callers(cluster)
    first = read_keys(keys)
    async with repeat_calls(before) as failed:
        await rotate(keys)
        both = read_keys(keys)
        assert all(len(words) == 2 and words[1:] == first[name] for name, words in both.items())
        after = await Callers.renew(before.api, before.client_token)
        assert set((await after.answers()).values()) == {200}
    assert failed == []

    # The token of a client that never calls is signed with the old key, so that key stays.
    environment = {"MONGO_URL": cluster.stores.mongo_url, "REDIS_URL": cluster.stores.redis_url}
    await cluster.age_tenant(before.api.tenant_id, 600)
    assert (await after.answers())["client"] == 200
    os.utime(keys / "client_token_key", (time.time() - 960, time.time() - 960))
    async with repeat_calls(after) as failed:
        assert "The old key of client tokens stays" in await rotate(keys, "--finish", **environment)
        assert len(read_keys(keys)["client_token_key"]) == 2
        deleted = await after.api.call("DELETE", "delete_client", *silent.split("/"))
        assert deleted.status == 200
        assert "The old key of client tokens stays" not in await rotate(keys, "--finish", **environment)
        assert read_keys(keys) == {name: words[:1] for name, words in both.items()}
        await until(lambda: _are_void(before))
    assert failed == []
    assert all((keys / name).stat().st_mode & 0o777 == 0o600 for name in NAMES)


async def _are_void(callers: Callers) -> bool:
    """Whether sessions and downloads of the old keys are void, and the client's token is valid."""
    answers = await callers.answers()
    return (answers["administrator"], answers["download"], answers["client"]) == (401, 403, 200)


def test_a_service_has_only_the_keys_of_services_that_it_calls() -> None:
    keys = {name: {key for key in KEYS if key in settings.model_fields} for name, settings in SETTINGS.items()}
    assert keys == {
        "auth_service": {"auth_service_key"},
        "catalog_service": set(KEYS),
        "upload_service": {"upload_service_key"},
        "client_registry": {"client_registry_key", "upload_service_key"},
    }


@pytest.mark.full
async def test_the_keys_of_a_service_are_valid_only_at_services_it_calls(
    cluster_with_keys: tuple[Cluster, Path],
) -> None:
    cluster, keys = cluster_with_keys
    for caller, settings in SETTINGS.items():
        own_keys = [name for name in NAMES if name in settings.model_fields]
        for target in SERVICES:
            accepted = [name for name in own_keys if await _accepts(cluster, keys / name, target)]
            assert accepted == [name for name in own_keys if name == f"{target}_key"], (caller, target)


async def _accepts(cluster: Cluster, key: Path, service: str) -> bool:
    """Whether a service accepts a token that is signed with this key."""
    async with open_service(cluster.replicas[service][0].address, service=service, keys=Keys(key)) as client:
        try:
            await client.json(make_caller(), OPERATIONS[service])
        except Unavailable:
            return False  # the answer for a wrong key
        except UpstreamProblem:
            pass  # Only auth_service reports the missing tenant.
    return True
