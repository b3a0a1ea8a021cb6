"""`pkgrepo`, as an operator uses it: the whole service in one command, and what can be done beside it."""

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.support.figures import figures_at
from tests.support.processes.forked import Program, start
from tests.support.servers.ports import free_port

PKGREPO = (sys.executable, "-m", "deploy.cli")
READY = "Ctrl-C stops everything."
LIMIT = 60  # seconds for a start or a stop; reached only when something hangs


@dataclass(frozen=True)
class Up:
    """A running `pkgrepo up` and what it said until it was ready."""

    process: Program
    said: str

    @property
    def base_url(self) -> str:
        found = re.search(r"(http://\S+) answers", self.said)
        assert found, self.said
        return found[1]

    @property
    def curl_lines(self) -> str:
        return "\n".join(line for line in self.said.splitlines() if "curl " in line)


@asynccontextmanager
async def starting(folder: Path, *options: str, **environment: str) -> AsyncIterator[Program]:
    command = [*PKGREPO, "up", "--data", str(folder), "--port", "0", *options]
    process = await start(command, env={**os.environ, **environment}, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(LIMIT):
            await process.communicate()


@asynccontextmanager
async def up(folder: Path, *options: str, **environment: str) -> AsyncIterator[Up]:
    async with starting(folder, *options, **environment) as process:
        yield Up(process, await _until_ready(process))


async def pkgrepo(*arguments: str, answer: str = "", **environment: str) -> tuple[int | None, str]:
    """Run a command to its end: its status and what it said, on one line of spaces."""
    process = await start(
        [*PKGREPO, *arguments],
        env={**os.environ, "COLUMNS": "200", **environment},
        said=answer.encode(),
        stdout=PIPE,
    )
    said, _ = await process.communicate()
    return process.returncode, " ".join(said.decode().split())


@dataclass(frozen=True)
class Past:
    """An `up` that was stopped by Ctrl-C: what it said, its end, the servers it had, and what told of it."""

    folder: Path
    said: str
    status: int
    servers: tuple[int, ...]
    told: bool


@pytest.fixture(scope="module")
async def stopped(tmp_path_factory: pytest.TempPathFactory) -> Past:
    """The first `up` on a folder, beside which a tenant was made."""
    folder = tmp_path_factory.mktemp("beside")
    async with up(folder) as service:
        assert (await pkgrepo("tenant", "create", "acme", "--data", str(folder)))[0] == 0
        servers = tuple(server_pid(folder, name) for name in ("mongodb", "redis"))
        service.process.send_signal(signal.SIGINT)
        status = await _ended(service.process)
    return Past(folder, service.said, status, servers, told=(folder / "run" / "addresses.json").exists())


@pytest.fixture(scope="module")
def management() -> str:
    """Where operators ask the second."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
async def running(stopped: Past, management: str) -> AsyncIterator[tuple[Up, Path]]:
    """The second, for all tests of this module that only work beside it."""
    async with up(stopped.folder, "--demo", MANAGEMENT_LISTEN=management) as service:
        yield service, stopped.folder


async def test_nothing_runs_after_a_stop(stopped: Past) -> None:
    assert stopped.status == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in stopped.servers)
    assert not stopped.told


async def test_the_three_curl_lines_work_as_they_stand(running: tuple[Up, Path]) -> None:
    service, _ = running
    shell = await asyncio.create_subprocess_exec("bash", "-ec", service.curl_lines, stdout=PIPE, stderr=PIPE)
    said, _ = await shell.communicate()
    assert shell.returncode == 0
    assert b'"PACKAGE_ID":"Example.Hello"' in said
    assert b'"tenant_id":"demo"' in said


async def test_the_first_password_is_shown_once_and_kept_for_its_owner_only(
    stopped: Past, running: tuple[Up, Path]
) -> None:
    service, folder = running
    password = (folder / "admin-password").read_text()
    assert password in stopped.said
    assert password not in service.said
    assert (folder / "admin-password").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o077 == 0
    credentials = {"username": "admin", "password": password}
    async with ClientSession() as session, session.post(f"{service.base_url}/login", data=credentials) as answer:
        assert answer.status == 200


async def test_what_was_made_is_there_after_a_restart(running: tuple[Up, Path]) -> None:
    assert "acme" in (await pkgrepo("tenant", "list", "--data", str(running[1])))[1]


async def test_a_start_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    async with starting(tmp_path) as process:
        async with asyncio.timeout(LIMIT):
            while not (mongod := server_pid(tmp_path, "mongodb")):  # noqa: ASYNC110  a file calls nobody
                await asyncio.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert await _ended(process) == 0
        assert process.stdout
        assert b"Traceback" not in await process.stdout.read()
    assert not Path(f"/proc/{mongod}").exists()
    assert not (tmp_path / "run" / "addresses.json").exists()


async def test_the_single_tenant_deployment_answers_under_client_api(tmp_path: Path) -> None:
    async with up(tmp_path, "--deployment", "single") as service:
        assert service.base_url.endswith("/client/api")
        async with ClientSession() as session, session.post(f"{service.base_url}/client_version") as answer:
            assert await answer.json() == {"Version": "0.0.0.0"}


async def test_a_second_start_on_the_folder_is_refused(running: tuple[Up, Path]) -> None:
    status, said = await pkgrepo("up", "--data", str(running[1]), "--port", "0")
    assert status == 1
    assert "already" in said
    assert "Traceback" not in said


async def test_a_tenant_is_created_edited_and_deleted_beside_a_running_service(running: tuple[Up, Path]) -> None:
    service, folder = running
    data = ("--data", str(folder))
    base = service.base_url.removesuffix("/demo")
    assert (await pkgrepo("tenant", "create", "globex", "--storage-quota", "1000", *data))[0] == 0
    created = await pkgrepo("user", "create", "globex", "helga", "--password-stdin", *data, answer="a long password\n")
    assert created[0] == 0
    async with ClientSession() as session:
        credentials = {"username": "helga", "password": "a long password"}
        async with session.post(f"{base}/globex/login", data=credentials) as answer:
            headers = {"Authorization": f"Bearer {(await answer.json())['message']}"}
        edited = await pkgrepo("tenant", "edit", "globex", "--max-clients", "7", "--client-authentication", *data)
        assert edited[0] == 0
        async with session.get(f"{base}/globex/server_information", headers=headers) as answer:
            information = await answer.json()
        assert (information["storage_quota"], information["max_clients"]) == (1000, 7)
        assert await _status_within(session, f"{base}/globex/get_packages", 401)
        assert (await pkgrepo("tenant", "delete", "globex", *data, answer="globex\n"))[0] == 0
        async with session.get(f"{base}/globex/test", headers=headers) as answer:
            assert answer.status == 404
    assert "globex" not in (await pkgrepo("tenant", "list", *data))[1]


async def test_a_password_is_generated_where_none_is_given(running: tuple[Up, Path]) -> None:
    service, folder = running
    status, said = await pkgrepo("user", "create", "demo", "erika", "--data", str(folder))
    assert status == 0
    credentials = {"username": "erika", "password": said.rsplit(" ", 1)[1]}
    async with ClientSession() as session, session.post(f"{service.base_url}/login", data=credentials) as answer:
        assert answer.status == 200
    assert "erika" in (await pkgrepo("user", "list", "demo", "--data", str(folder)))[1]
    assert (await pkgrepo("user", "delete", "demo", "erika", "--data", str(folder)))[0] == 0


async def test_the_keys_are_replaced_beside_a_running_service(running: tuple[Up, Path]) -> None:
    service, folder = running
    password = (folder / "admin-password").read_text()
    async with ClientSession() as session:
        credentials = {"username": "admin", "password": password}
        async with session.post(f"{service.base_url}/login", data=credentials) as answer:
            headers = {"Authorization": f"Bearer {(await answer.json())['message']}"}
        for option, status in ((), 200), (("--finish",), 401):
            ended, said = await pkgrepo("keys", "rotate", "--data", str(folder), *option)
            assert ended == 0, said
            async with asyncio.timeout(LIMIT):
                while await _status(session, f"{service.base_url}/test", headers) != status:
                    assert option, "a session did not survive the rotation"
        async with session.post(f"{service.base_url}/login", data=credentials) as answer:
            assert answer.status == 200


async def test_the_first_tenant_of_a_cluster_has_the_password_that_was_handed_out(
    running: tuple[Up, Path], tmp_path: Path
) -> None:
    service, folder = running
    stores = json.loads((folder / "run" / "addresses.json").read_text())
    environment = {name.upper(): stores[name] for name in ("mongo_url", "redis_url")}
    environment["AUDIT_KEY_FILE"] = str(folder / "audit-key")
    password = tmp_path / "password"
    password.write_text("the-one-that-was-handed-out\n")
    command = ("cluster", "first-tenant", "cluster", "--password-file", str(password))
    for said in ("Tenant cluster has the administrator admin", "Tenant cluster is there."):
        ended, words = await pkgrepo(*command, **environment)
        assert (ended, said in words) == (0, True), words
    async with ClientSession() as session:
        credentials = {"username": "admin", "password": "the-one-that-was-handed-out"}
        async with session.post(f"{service.base_url.rpartition('/')[0]}/cluster/login", data=credentials) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("tenant", "create", "Not An Id"), "tenant_id"),
        (("tenant", "create", "demo"), "already"),
        (("tenant", "edit", "nobody", "--max-clients", "1"), "no tenant"),
        (("tenant", "edit", "demo", "--allowed-networks", "300.1.2.3"), "--allowed-networks"),
        (("user", "create", "nobody", "x"), "no tenant"),
        (("user", "delete", "demo", "admin"), "last user"),
        (("user", "password", "demo", "nobody"), "no user"),
    ],
)
async def test_what_cannot_be_done_is_said_in_one_line(
    running: tuple[Up, Path], arguments: tuple[str, ...], reason: str
) -> None:
    status, said = await pkgrepo(*arguments, "--data", str(running[1]))
    assert status != 0
    assert reason in said
    assert "Traceback" not in said


@pytest.mark.parametrize("options", [(), ("--data", "x", "--folder", "y"), ("--folder", "/nowhere")])
async def test_keys_that_cannot_be_rotated_are_said_in_one_line(options: tuple[str, ...]) -> None:
    status, said = await pkgrepo("keys", "rotate", *options)
    assert status == 1
    assert said.startswith("pkgrepo: ")
    assert "Traceback" not in said


async def test_status_shows_every_service(running: tuple[Up, Path]) -> None:
    status, said = await pkgrepo("status", "--data", str(running[1]))
    assert status == 0
    for service in ("gateway", "auth_service", "catalog_service", "upload_service", "client_registry"):
        assert service in said
    assert "not ready" not in said


async def test_the_figures_of_all_services_are_told_at_once(running: tuple[Up, Path], management: str) -> None:
    async with ClientSession() as session:
        figures = await figures_at(session, f"http://{management}")
    services = {"gateway", "auth_service", "catalog_service", "upload_service", "client_registry"}
    assert {figure.labels["service"] for figure in figures.of("pkgrepo_ready")} == services
    assert {figure.value for figure in figures.of("pkgrepo_ready")} == {1}


async def test_status_of_nothing_fails() -> None:
    closed = dict.fromkeys(
        ("GATEWAY_URL", "AUTH_SERVICE_URL", "CATALOG_SERVICE_URL", "UPLOAD_SERVICE_URL", "CLIENT_REGISTRY_URL"),
        "http://127.0.0.1:9",
    )
    status, said = await pkgrepo("status", **closed)
    assert status == 1
    assert said.count("does not answer") == 5


async def test_without_a_folder_or_addresses_the_command_says_what_it_wants() -> None:
    status, said = await pkgrepo("tenant", "list", MONGO_URL="", REDIS_URL="")
    assert status == 1
    assert "--data DIR" in said
    assert "MONGO_URL" in said


def server_pid(folder: Path, name: str) -> int:
    """Of a bundled server; 0 where it does not run yet."""
    file = folder / name / "server.pid"
    return int(file.read_text() or 0) if file.exists() else 0


async def _ended(process: Program) -> int:
    async with asyncio.timeout(LIMIT):
        return await process.wait()


async def _until_ready(process: Program) -> str:
    assert process.stdout is not None
    said = []
    async with asyncio.timeout(LIMIT):
        async for line in process.stdout:
            said.append(line.decode())
            if READY in said[-1]:
                return "".join(said)
    raise AssertionError("".join(said))


async def _status(session: ClientSession, url: str, headers: dict[str, str]) -> int:
    async with session.get(url, headers=headers) as answer:
        return answer.status


async def _status_within(session: ClientSession, url: str, status: int) -> bool:
    async with asyncio.timeout(LIMIT):
        while True:
            async with session.post(url) as answer:
                if answer.status == status:
                    return True
