"""`pkgrepo up`, and other commands while it runs."""

import asyncio
import re
import signal
import socket
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from aiohttp import ClientSession
from yarl import URL

from deploy.local.demo import SAMPLES
from tests.support.metrics import fetch_metrics
from tests.support.processes.fork_server import Program
from tests.support.processes.pkgrepo_command import (
    TIMEOUT,
    RunningPkgrepo,
    administrator,
    pkgrepo,
    pkgrepo_commands,
    run_pkgrepo,
    start_pkgrepo,
)
from tests.support.servers.entra import APP, DIRECTORY
from tests.support.servers.object_storage import ObjectServer
from tests.support.servers.ports import free_port
from tests.support.wait import until

ENTRA_APP = ("--directory", DIRECTORY, "--client-id", APP.client_id, "--resource", APP.resource, "--scope", APP.scope)
SERVICES = {"gateway", "auth_service", "catalog_service", "upload_service", "client_registry"}


@dataclass(frozen=True)
class Stopped:
    """A `pkgrepo up` after Ctrl-C: its output, status and servers, and whether its address file exists."""

    folder: Path
    output: str
    status: int
    servers: tuple[int, ...]
    has_addresses: bool


@pytest.fixture(scope="module")
async def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """The first `pkgrepo up` on a folder, in which a tenant was created."""
    folder = tmp_path_factory.mktemp("beside")
    async with run_pkgrepo(folder) as service:
        assert (await pkgrepo("tenant", "create", "acme", "--data", str(folder)))[0] == 0
        servers = tuple(server_pid(folder, name) for name in ("mongodb", "redis"))
        service.process.send_signal(signal.SIGINT)
        status = await _ended(service.process)
    return Stopped(folder, service.output, status, servers, (folder / "run" / "addresses.json").exists())


@pytest.fixture(scope="module")
def management() -> str:
    """The management address of the second `pkgrepo up`."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
async def running(stopped: Stopped, management: str) -> AsyncIterator[RunningPkgrepo]:
    """The second `pkgrepo up`, shared by tests that need a running one."""
    async with run_pkgrepo(stopped.folder, "--demo", MANAGEMENT_LISTEN=management) as service:
        yield service


async def test_nothing_runs_after_a_stop(stopped: Stopped) -> None:
    assert stopped.status == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in stopped.servers)
    assert not stopped.has_addresses


async def test_the_three_curl_lines_work_as_printed(running: RunningPkgrepo) -> None:
    shell = await asyncio.create_subprocess_exec("bash", "-ec", running.curl_lines, stdout=PIPE, stderr=PIPE)
    output, _ = await shell.communicate()
    assert shell.returncode == 0
    assert b'"package_id":"Example.Hello"' in output
    assert b'"tenant_id":"demo"' in output


async def test_the_first_password_is_shown_once_and_only_its_owner_reads_it(
    stopped: Stopped, running: RunningPkgrepo
) -> None:
    password = (running.folder / "admin-password").read_text()
    assert password in stopped.output
    assert password not in running.output
    assert (running.folder / "admin-password").stat().st_mode & 0o777 == 0o600
    assert running.folder.stat().st_mode & 0o077 == 0
    async with ClientSession() as session:
        assert await administrator(session, running.base_url, running.folder)


async def test_a_browser_without_a_path_reaches_the_sign_in(running: RunningPkgrepo) -> None:
    base_url = running.base_url
    async with (
        ClientSession(headers={"Accept": "text/html"}) as session,
        session.get(base_url.removesuffix("demo")) as answer,
    ):
        assert (answer.status, str(answer.url)) == (200, f"{base_url}/sign_in?next=/demo/dashboard")


async def test_without_tls_no_ca_certificate_is_offered(running: RunningPkgrepo) -> None:
    async with ClientSession() as session, session.get(URL(running.base_url).with_path("/ca.crt")) as answer:
        assert answer.status == 404
    assert "PowerShell" not in running.output


async def test_a_tenant_exists_after_a_restart(running: RunningPkgrepo) -> None:
    assert "acme" in (await pkgrepo("tenant", "list", *running.data))[1]


@pytest.mark.full
async def test_an_interrupted_start_leaves_no_process(tmp_path: Path) -> None:
    async with start_pkgrepo(tmp_path) as process:

        async def database_runs() -> bool:
            return server_pid(tmp_path, "mongodb") > 0

        await until(database_runs, timeout=TIMEOUT)
        mongod = server_pid(tmp_path, "mongodb")
        process.send_signal(signal.SIGTERM)
        assert await _ended(process) == 0
        assert process.stdout
        assert b"Traceback" not in await process.stdout.read()
    assert not Path(f"/proc/{mongod}").exists()
    assert not (tmp_path / "run" / "addresses.json").exists()


@pytest.mark.full
async def test_the_single_tenant_deployment_answers_under_client_api(tmp_path: Path) -> None:
    async with run_pkgrepo(tmp_path, "--deployment", "single") as service:
        assert service.base_url.endswith("/client/api")
        async with ClientSession() as session, session.post(f"{service.base_url}/client_version") as answer:
            assert await answer.json() == {"Version": "0.0.0.0"}


async def test_a_tenant_is_managed_while_services_run(running: RunningPkgrepo) -> None:
    base = running.base_url.removesuffix("/demo")
    password = "a long password"
    created = await pkgrepo_commands(
        ("tenant", "create", "globex", "--storage-quota", "1000", *running.data),
        ("user", "create", "globex", "helga", "--password-stdin", *running.data),
        answer=f"{password}\n",
    )
    assert [status for status, _ in created] == [0, 0], created
    async with ClientSession() as session:
        credentials = {"username": "helga", "password": password}
        async with session.post(f"{base}/globex/login", data=credentials) as answer:
            headers = {"Authorization": f"Bearer {(await answer.json())['message']}"}
        settings = ("--max-clients", "7", "--client-authentication")
        assert (await pkgrepo("tenant", "edit", "globex", *settings, *running.data))[0] == 0
        async with session.get(f"{base}/globex/server_information", headers=headers) as answer:
            information = await answer.json()
        assert (information["storage_quota"], information["max_clients"]) == (1000, 7)

        async def clients_need_a_token() -> bool:
            async with session.post(f"{base}/globex/get_packages") as answer:
                return answer.status == 401

        await until(clients_need_a_token, timeout=TIMEOUT)
        assert (await pkgrepo("tenant", "delete", "globex", *running.data, answer="globex\n"))[0] == 0
        async with session.get(f"{base}/globex/test", headers=headers) as answer:
            assert answer.status == 404
    assert "globex" not in (await pkgrepo("tenant", "list", *running.data))[1]


async def test_an_app_of_entra_id_is_set_shown_and_removed(running: RunningPkgrepo) -> None:
    address = f"{running.base_url.removesuffix('/demo')}/entra/winget/information"
    assert (await pkgrepo("tenant", "create", "entra", *running.data))[0] == 0
    async with ClientSession() as session:

        async def authentication() -> str:
            async with session.get(address) as answer:
                return str((await answer.json())["Data"].get("Authentication", ""))

        assert await authentication() == ""
        set_, shown = await pkgrepo_commands(
            ("tenant", "entra", "set", "entra", *ENTRA_APP, "--map", "Package pilots=pilot", *running.data),
            ("tenant", "entra", "show", "entra", *running.data),
        )
        assert (set_[0], shown[0]) == (0, 0), (set_, shown)
        for text in (*ENTRA_APP[1::2], "Package pilots=pilot"):
            assert text in shown[1]
        assert ENTRA_APP[5] in await authentication()
        assert (await pkgrepo("tenant", "entra", "remove", "entra", *running.data))[0] == 0
        assert await authentication() == ""
    assert (await pkgrepo("tenant", "delete", "entra", "--yes", *running.data))[0] == 0


async def test_addresses_of_recent_sign_ins_are_named_in_the_warning(running: RunningPkgrepo) -> None:
    async with ClientSession() as session:
        await administrator(session, running.base_url, running.folder)
    edit = ("tenant", "edit", "demo", "--allowed-networks")
    narrow, wide, back = await pkgrepo_commands(
        *((*edit, networks) for networks in ("10.0.0.0/8", "127.0.0.1,10.0.0.0/8", "")),
        **running.environment,
    )
    assert (narrow[0], wide[0], back[0]) == (0, 0, 0)
    assert "Warning: 127.0.0.1 is not in these networks." in narrow[1]
    assert "Warning" not in wide[1]


async def test_a_password_is_generated_if_none_is_given(running: RunningPkgrepo) -> None:
    status, output = await pkgrepo("user", "create", "demo", "erika", "--role", "viewer", *running.data)
    assert status == 0
    credentials = {"username": "erika", "password": output.rsplit(" ", 1)[1]}
    async with ClientSession() as session, session.post(f"{running.base_url}/login", data=credentials) as answer:
        assert answer.status == 200
    listed, deleted = await pkgrepo_commands(
        ("user", "list", "demo", *running.data), ("user", "delete", "demo", "erika", *running.data)
    )
    assert re.search(r"erika\W+viewer", listed[1])
    assert re.search(r"admin\W+administrator", listed[1])
    assert deleted[0] == 0


async def test_keys_are_rotated_while_services_run(running: RunningPkgrepo) -> None:
    async with ClientSession() as session:
        headers = await administrator(session, running.base_url, running.folder)

        async def status() -> int:
            async with session.get(f"{running.base_url}/test", headers=headers) as answer:
                return answer.status

        async def session_is_void() -> bool:
            return await status() == 401

        tokens = []
        for name in ("pc-calling", "pc-silent"):
            form = {"client_name": name}
            async with session.post(f"{running.base_url}/add_client", headers=headers, data=form) as answer:
                tokens.append((await answer.json())["auth_token"])
        ended, output = await pkgrepo("keys", "rotate", *running.data)
        assert (ended, await status()) == (0, 200), output
        async with session.post(f"{running.base_url}/get_packages", data={"auth_token": tokens[0]}) as answer:
            assert answer.status == 200
        ended, output = await pkgrepo("keys", "rotate", *running.data, "--finish")
        assert (ended, "stored under it: demo/pc-silent. " in output) == (0, True), output
        await until(session_is_void, timeout=TIMEOUT)
        assert await administrator(session, running.base_url, running.folder)


async def test_a_clusters_first_tenant_has_the_password_from_the_file(running: RunningPkgrepo, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("the-one-that-was-handed-out\n")
    command = ("cluster", "first-tenant", "cluster", "--password-file", str(password))
    created, again = await pkgrepo_commands(command, command, **running.environment)
    for expected, (status, output) in (
        ("Tenant cluster has the administrator admin", created),
        ("Tenant cluster exists already.", again),
    ):
        assert (status, expected in output) == (0, True), output
    async with ClientSession() as session:
        credentials = {"username": "admin", "password": "the-one-that-was-handed-out"}
        async with session.post(f"{running.base_url.rpartition('/')[0]}/cluster/login", data=credentials) as answer:
            assert answer.status == 200


async def test_each_invalid_command_is_rejected_in_one_line(running: RunningPkgrepo) -> None:
    reasons = {
        ("up", "--port", "0"): "or use --data with another folder.",
        ("tenant", "create", "Not An Id"): "tenant_id",
        ("tenant", "create", "demo"): "already",
        ("tenant", "edit", "nobody", "--max-clients", "1"): "no tenant",
        ("tenant", "edit", "demo", "--allowed-networks", "300.1.2.3"): "--allowed-networks",
        ("user", "create", "nobody", "x"): "no tenant",
        ("user", "delete", "demo", "admin"): "last administrator",
        ("user", "edit", "demo", "admin", "--role", "viewer"): "last administrator",
        ("user", "edit", "demo", "nobody", "--role", "viewer"): "no user",
        ("user", "edit", "demo", "admin", "--role", "root"): "'root'",
        ("user", "password", "demo", "nobody"): "no user",
        ("tenant", "entra", "set", "demo", *ENTRA_APP, "--directory", "acme.example"): "directory",
        ("tenant", "entra", "set", "demo", *ENTRA_APP, "--map", "Pilot"): "map",
        ("tenant", "entra", "set", "nobody", *ENTRA_APP): "no tenant",
        ("tenant", "entra", "show", "demo"): "no app of Entra ID",
        ("scrub", "--tenant", "nobody"): "nobody",
        ("scan", "--again", "--tenant", "nobody"): "nobody",
        ("scan",): "--again",
        ("quota", "--tenant", "nobody"): "nobody",
        ("token", "create", "demo", "ci", "--role", "administrator"): "no token may have",
        ("token", "create", "demo", "ci", "--role", "root"): "'root'",
        ("token", "create", "demo", "ci", "--role", "viewer", "--package", "a/b"): "package_ids: 'a/b'",
        ("token", "create", "demo", "ci", "--role", "viewer", "--network", "x"): "networks:",
        ("token", "create", "demo", "ci", "--role", "viewer", "--days", "367"): "Usage",
        ("token", "create", "nobody", "ci", "--role", "viewer"): "no tenant",
        ("token", "rotate", "demo", "other"): "no token 'other'",
        ("token", "delete", "demo", "other"): "no token 'other'",
        ("audit", "verify", "--expect", f"1:{'0' * 64}"): "pkgrepo: --expect: ",
        ("audit", "verify", "--tenant", "demo", "--expect", "1"): "pkgrepo: --expect: ",
        ("audit", "export", "--tenant", "demo", "--since", "yesterday"): "pkgrepo: --since: ",
        ("storage", "migrate", "--to", "s3"): "pkgrepo: S3_URL: is missing; set it as for the upload service",
    }
    results = await pkgrepo_commands(*((*command, *running.data) for command in reasons))
    wrong = [
        (command, status, output)
        for (command, reason), (status, output) in zip(reasons.items(), results, strict=True)
        if not status or reason not in output or "Traceback" in output
    ]
    assert wrong == []


async def test_status_shows_every_service(running: RunningPkgrepo) -> None:
    status, output = await pkgrepo("status", *running.data)
    assert status == 0
    assert [service for service in SERVICES if service not in output] == []
    assert "not ready" not in output


async def test_one_address_has_the_metrics_of_all_services(running: RunningPkgrepo, management: str) -> None:
    async with ClientSession() as session:
        metrics = await fetch_metrics(session, f"http://{management}")
    assert {line.labels["service"] for line in metrics.named("pkgrepo_ready")} == SERVICES
    assert {line.value for line in metrics.named("pkgrepo_ready")} == {1}


async def test_a_flipped_byte_is_found_and_a_restored_file_is_served(running: RunningPkgrepo) -> None:
    async with ClientSession() as session:
        session.headers.update(await administrator(session, running.base_url, running.folder))
        async with session.get(f"{running.base_url}/get_package_versions/Example.Clock") as answer:
            address = (await answer.json())[0]["INSTALLER_URL"]
        path = running.folder / "installers" / "demo" / address.rsplit("/", 2)[1]
        content = path.read_bytes()
        for stored, damaged, served in ((bytes([content[0] ^ 1]) + content[1:], 1, 404), (content, 0, 200)):
            path.write_bytes(stored)
            status, output = await pkgrepo("scrub", "--tenant", "demo", *running.data)
            assert (status, f"{damaged} are damaged" in output) == (damaged, True), output
            async with session.get(address) as answer:
                assert answer.status == served


async def test_installers_move_to_an_object_storage_and_back(
    running: RunningPkgrepo, object_server: ObjectServer
) -> None:
    folder = running.folder
    storage = {name.upper(): text for name, text in object_server.settings(uuid4().hex).items()}
    installers = {path: path.read_bytes() for path in (folder / "installers" / "demo").glob("*.*")}
    assert len(installers) == sum(len(sample.versions) for sample in SAMPLES)
    for home, place, remaining in (("s3", "object storage", {}), ("folder", "folder", installers)):
        status, output = await pkgrepo("storage", "migrate", "--to", home, "--data", str(folder), **storage)
        assert (status, f"{len(installers)} files were moved to the {place}." in output) == (0, True), output
        assert {path: path.read_bytes() for path in (folder / "installers" / "demo").glob("*.*")} == remaining


async def test_a_taken_port_is_named_with_the_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, output = await pkgrepo("up", "--data", str(tmp_path / "data"), "--port", str(port))
    assert (status, f"pkgrepo: Port {port} is in use. Run `pkgrepo up --port " in output) == (1, True), output


async def test_status_and_other_commands_fail_without_stores() -> None:
    closed = {f"{name.upper()}_URL": "http://127.0.0.1:9" for name in SERVICES}
    status, tenants = await pkgrepo_commands(("status",), ("tenant", "list"), **closed, MONGO_URL="", REDIS_URL="")
    assert (status[0], status[1].count("does not answer")) == (1, 5)
    assert tenants[0] == 1
    assert "--data DIR" in tenants[1]
    assert "MONGO_URL" in tenants[1]


def server_pid(folder: Path, name: str) -> int:
    """The pid of a bundled server; 0 if it does not run."""
    file = folder / name / "server.pid"
    return int(file.read_text() or 0) if file.exists() else 0


async def _ended(process: Program) -> int:
    async with asyncio.timeout(TIMEOUT):
        return await process.wait()
