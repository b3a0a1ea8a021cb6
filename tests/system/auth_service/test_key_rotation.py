"""Every key is replaced while everything runs, and no request fails for it."""

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
from tests.support.wait import until
from tests.support.whole.publishing import add_package, package_id, publish, version_of
from tests.support.whole.services import Api
from upload_service.settings import UploadSettings

KEYS = [f"{name}_key" for name in SERVICES]
NAMES = (*KEYS, "session_key", "download_key", "client_token_key")

SETTINGS: dict[str, type[ServiceSettings]] = {
    "auth_service": AuthSettings,
    "catalog_service": CatalogSettings,
    "upload_service": UploadSettings,
    "client_registry": RegistrySettings,
}
ASKED = {
    "auth_service": "find_tenant",
    "catalog_service": "get_packages",
    "upload_service": "storage_usage",
    "client_registry": "client_usage",
}


def key_files(folder: Path) -> dict[str, str]:
    """A key of its own for every purpose, each in a file; the environment that names them."""
    folder.mkdir()
    for name in NAMES:
        write_secret(folder / name, new_key())
    files = {f"{name.upper()}_FILE": str(folder / name) for name in NAMES}
    return {**files, "INTERNAL_KEY": "", "SESSION_KEY": "", "DOWNLOAD_KEY": "", "CLIENT_TOKEN_KEY": ""}


def kept(folder: Path) -> dict[str, list[str]]:
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
    """An administrator, a client and a download, each with what was signed for it once."""

    def __init__(self, api: Api, client_token: str, link: str) -> None:
        self.api, self.client_token, self.link = api, client_token, link

    @classmethod
    async def of(cls, api: Api, client_token: str) -> "Callers":
        """As they are from now on: a new session and a new download address, which leads to the same file."""
        api = await api.signed_in()
        packages = (await api.call("POST", "get_packages")).body
        version = (await api.call("GET", "get_specific_package_version", packages[0]["VERSIONS_UID"][0])).body
        return cls(api, client_token, version["INSTALLER_URL"])

    async def answers(self) -> dict[str, int]:
        """The status that each of them gets."""
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
async def calling(callers: Callers) -> AsyncIterator[list[Mapping[str, int]]]:
    """Call again and again, as several at once; what was answered otherwise than with 200."""
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
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended


async def settled(cluster: Cluster) -> tuple[Callers, str]:
    """A tenant with an administrator, a version, a client that calls and a client that never does, its id."""
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
    """Processes that have a key for every purpose, and the folder of the keys."""
    with TemporaryDirectory(prefix="pkgrepo-") as place:
        keys = Path(place, "keys")
        async with (
            private_stores(Path(place)) as stores,
            run_cluster(stores, key_files(keys), gateway=2, client_registry=2) as cluster,
        ):
            yield cluster, keys


@pytest.mark.full  # tests/system/deploy/test_pkgrepo.py rotates the keys of `pkgrepo up`.
async def test_no_request_fails_while_every_key_is_replaced(cluster_with_keys: tuple[Cluster, Path]) -> None:
    cluster, keys = cluster_with_keys
    before, silent = await settled(cluster)
    first = kept(keys)
    async with calling(before) as failed:
        await rotate(keys)
        both = kept(keys)
        assert all(len(words) == 2 and words[1:] == first[name] for name, words in both.items())
        after = await Callers.of(before.api, before.client_token)
        assert set((await after.answers()).values()) == {200}
    assert failed == []

    # A client that never calls is known by its key of before alone, so that key stays.
    environment = {"MONGO_URL": cluster.stores.mongo_url, "REDIS_URL": cluster.stores.redis_url}
    await cluster.age_tenant(before.api.tenant_id, 600)
    assert (await after.answers())["client"] == 200
    os.utime(keys / "client_token_key", (time.time() - 960, time.time() - 960))
    async with calling(after) as failed:
        assert "1 clients have not called since" in await rotate(keys, "--finish", **environment)
        assert len(kept(keys)["client_token_key"]) == 2
        deleted = await after.api.call("DELETE", "delete_client", *silent.split("/"))
        assert deleted.status == 200
        assert "1 clients" not in await rotate(keys, "--finish", **environment)
        assert kept(keys) == {name: words[:1] for name, words in both.items()}
        await until(lambda: _void(before))
    assert failed == []
    assert all((keys / name).stat().st_mode & 0o777 == 0o600 for name in NAMES)


async def _void(callers: Callers) -> bool:
    """Whether what the keys of before signed is void by now, but the client's token."""
    answers = await callers.answers()
    return (answers["administrator"], answers["download"], answers["client"]) == (401, 403, 200)


def test_a_service_has_only_the_keys_of_services_that_it_calls() -> None:
    keys = {name: {key for key in KEYS if key in settings.model_fields} for name, settings in SETTINGS.items()}
    assert keys == {
        "auth_service": {"auth_service_key", "upload_service_key", "client_registry_key"},
        "catalog_service": {"catalog_service_key", "upload_service_key", "client_registry_key"},
        "upload_service": {"upload_service_key"},
        "client_registry": {"client_registry_key", "upload_service_key"},
    }


@pytest.mark.full
async def test_the_keys_of_a_service_are_valid_only_at_services_it_calls(
    cluster_with_keys: tuple[Cluster, Path],
) -> None:
    cluster, keys = cluster_with_keys
    for thief, settings in SETTINGS.items():
        held = [name for name in NAMES if name in settings.model_fields]
        for victim in SERVICES:
            opened = [name for name in held if await _opens(cluster, keys / name, victim)]
            assert opened == [name for name in held if name == f"{victim}_key"], (thief, victim)


async def _opens(cluster: Cluster, key: Path, service: str) -> bool:
    """Whether a service answers who signs with this key for it."""
    async with open_service(cluster.replicas[service][0].address, service=service, keys=Keys(key)) as client:
        try:
            await client.json(make_caller(), ASKED[service])
        except Unavailable:
            return False  # as services say when their keys differ
        except UpstreamProblem:
            pass  # The tenant is not there, which only auth_service cares about.
    return True
