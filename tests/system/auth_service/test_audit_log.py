"""The audit log through the gateway: every write is recorded with user, address and operation."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from common.auth.roles import FOR_TOKENS_ONLY
from common.http.server import management_of, serving
from gateway.app import create_app
from gateway.forwarding import audit
from gateway.operations import OPERATIONS, Access, Operation
from gateway.settings import GatewaySettings
from tests.support.api import Answer
from tests.support.factories import KEYS
from tests.support.metrics import fetch_metrics
from tests.support.servers.ports import free_port
from tests.support.system.fields import select_fields
from tests.support.system.forms import OF_PROVIDERS
from tests.support.system.gateways import SERVICES, at_gateway, run_gateway
from tests.support.system.publishing import publish_in_one_call, send_chunk, upload
from tests.support.system.seed import UNKNOWN, SeedData, seed_tenant, segments, title
from tests.support.system.services import PASSWORD, Api, Services, bearer
from tests.support.wait import TIMEOUT, until

AUDITED = [row for row in OPERATIONS if row.audited]
# Only the last chunk of a file is recorded. auth_service records logins and logouts.
LOGOUTS = {"POST-logout", "POST-sign_in/oidc/backchannel_logout"}
WRITES_BY_RULES = {"POST-upload_package_version", "POST-login", *LOGOUTS}
CALLER = ("admin", "127.0.0.1")
READS_BY_POST = {"POST-client_version", "POST-get_packages", "POST-winget/manifestSearch"}


async def entries(api: Api, **query: Any) -> list[dict[str, Any]]:
    answer = await api.call("GET", "get_audit_log", params={"limit": "1000", **query})
    assert answer.status == 200, answer.body
    body: list[dict[str, Any]] = answer.body
    return body


async def entries_of(api: Api, answer: Answer) -> list[dict[str, Any]]:
    """The entries of one request. Background work of release control adds its own at any time."""
    request_id = answer.headers["X-Request-Id"]
    return [entry for entry in await entries(api) if entry["request_id"] == request_id]


@pytest.fixture
async def seed_data(tenant: Api) -> SeedData:
    return await seed_tenant(tenant)


@pytest.fixture(scope="module")
async def empty_tenant(services: Services) -> Api:
    """An administrator of a tenant without any objects."""
    return await services.tenant()


def test_every_operation_that_changes_something_is_audited() -> None:
    changing = {title(row) for row in OPERATIONS if row.method not in {"GET", "HEAD"} and row.access is not Access.PAGE}

    assert changing - WRITES_BY_RULES - READS_BY_POST == {title(row) for row in AUDITED}


async def test_each_write_is_recorded(services: Services) -> None:
    seed_data, wrong = await seed_tenant(await services.tenant()), list[str]()
    for row in sorted((row for row in AUDITED if row.name not in OF_PROVIDERS), key=_order):
        new_values = {"username": f"new-{seed_data.marker}", "version_key": "installer"}
        if row.name == "enroll_client":
            new_values["client_name"] = f"enrolled-{seed_data.marker}"
        if row.name in {"add_package_version", "publish_client"}:
            new_values["server_filename"] = await upload(seed_data.api, b"an installer")
        answer = await seed_data.send(row, data=select_fields(row, {**seed_data.form, **new_values}))
        found = await entries_of(seed_data.api, answer)
        is_described = all(entry["target"] or entry["changes"] for entry in found)
        if (
            answer.status >= 400
            or [*map(_summary, found)] != [(*_caller(row), row.name, answer.status)]
            or not is_described
        ):
            wrong.append(f"{title(row)}: {answer.status} {answer.body}: {found}")
        if row.name == "rotate_client_token":
            seed_data = replace(seed_data, parts={**seed_data.parts, "auth_token": answer.body["auth_token"]})
    assert wrong == []


async def test_each_rejected_write_is_recorded(empty_tenant: Api) -> None:
    wrong = []
    for row in AUDITED:
        answer = await empty_tenant.call(row.method, *segments(row, UNKNOWN), data={"no": "field"})
        found = await entries_of(empty_tenant, answer)
        refused = 400 <= answer.status < 500 or row.name == "edit_settings"
        has_token = any("auth_token" in entry["target"] for entry in found)
        if not refused or [*map(_summary, found)] != [(*CALLER, row.name, answer.status)] or has_token:
            wrong.append(f"{title(row)}: {answer.status} {answer.body}: {found}")
    assert wrong == []


async def test_a_caller_without_a_session_leaves_no_entry(empty_tenant: Api) -> None:
    before = await entries(empty_tenant)
    anonymous = empty_tenant.anonymous()
    statuses = {title(row): (await anonymous.call(row.method, *segments(row, UNKNOWN))).status for row in AUDITED}

    assert statuses == dict.fromkeys(statuses, 401)
    assert await entries(empty_tenant) == before


async def test_no_secret_is_in_an_entry(seed_data: SeedData) -> None:
    secrets = {seed_data.form[name] for name in ("password", "old_password", "new_password", "token")}
    secrets.add(seed_data.parts["auth_token"])
    for row in sorted(AUDITED, key=lambda row: row.name.startswith("delete")):
        form = {**seed_data.form, "client_name": f"{row.name.replace('_', '-')}-{seed_data.marker}"}
        answer = await seed_data.send(row, data=select_fields(row, form))
        secrets |= {answer.body["auth_token"]} if "auth_token" in answer.body else set()
        await seed_data.api.call(row.method, *segments(row, {**UNKNOWN, "auth_token": seed_data.parts["auth_token"]}))
    api = await seed_data.api.signed_in(password=seed_data.form["new_password"])
    await api.anonymous().call("POST", "login", data={"username": "admin", "password": "a wrong password"})

    text = str(await entries(seed_data.api))

    assert len(secrets) == 8
    assert not [secret for secret in (*secrets, "a wrong password") if secret in text]


async def test_an_edit_records_only_the_fields_that_changed(tenant: Api) -> None:
    package = {"package_id": "Acme.Launcher", "package_name": "Launcher", "package_publisher": "Acme"}
    assert (await tenant.call("POST", "add_package", data={**package, "package_description": ""})).status == 200
    del package["package_id"]
    edits: list[tuple[tuple[str, ...], dict[str, str], dict[str, Any]]] = [
        (
            ("edit_package", "Acme.Launcher"),
            {**package, "package_description": "Starts programs"},
            {"description": {"before": "", "after": "Starts programs"}},
        ),
        (("set_package_active", "Acme.Launcher"), {"package_active": "1"}, {}),
        (
            ("edit_settings",),
            {"version_key": "version", "client_authentication": "true"},
            {"client_authentication": {"before": "false", "after": "true"}},
        ),
    ]
    for operation, form, changes in edits:
        answer = await tenant.call("PATCH", *operation, data=form)
        assert answer.status == 200
        [entry] = await entries_of(tenant, answer)
        assert (entry["operation"], entry["changes"]) == (operation[0], changes)


async def test_failed_and_successful_sign_ins_are_recorded(tenant: Api) -> None:
    await tenant.anonymous().call("POST", "login", data={"username": "admin", "password": "wrong password"})
    await tenant.signed_in()
    await tenant.anonymous().call("POST", "sign_in", data={"username": "admin", "password": PASSWORD})

    log_entries = await entries(tenant, operation="login")

    assert [entry["status"] for entry in log_entries] == [200, 200, 401, 200]
    assert {(entry["user"], entry["ip"], entry["operation"]) for entry in log_entries} == {(*CALLER, "login")}


async def test_a_finished_upload_is_recorded_and_a_chunk_is_not(tenant: Api) -> None:
    await send_chunk(tenant, "setup", b"x" * 100, 0, 50)
    before = await entries(tenant, operation="upload_package_version")
    answer = await send_chunk(tenant, "setup", b"x" * 100, 50, 100)

    [entry] = await entries(tenant, operation="upload_package_version")

    assert before == []
    assert entry["target"] == {name: answer.body[name] for name in ("server_filename", "sha256")}


async def test_a_version_in_one_call_is_one_entry(seed_data: SeedData) -> None:
    package = seed_data.parts["package_id"]
    published = await publish_in_one_call(seed_data.api, package, "7.0", content=b"content")

    [entry] = [row for row in await entries(seed_data.api) if row["target"].get("version") == "7.0"]

    assert entry["target"] == {"package_id": package, "version": "7.0", "uid": published.uid}


async def test_the_jsonl_export_has_every_entry(seed_data: SeedData) -> None:
    before = await entries(seed_data.api)
    answer = await seed_data.api.call("GET", "get_audit_log", params={"format": "jsonl"})

    assert answer.headers["Content-Type"] == "application/jsonl"
    assert len(before) > 5
    # Background work of release control may have added an entry.
    assert [*map(json.loads, answer.body.splitlines())][-len(before) :] == before


async def test_refused_writes_of_a_token_hide_no_refusal_of_others(tenant: Api) -> None:
    token = (await tenant.call("POST", "add_token", data={"name": "dashboards", "role": "viewer"})).body["token"]
    viewer = replace(tenant, headers=bearer(token))
    for _ in range(audit.MAX_REFUSALS + 1):
        assert (await viewer.call("DELETE", "delete_package", "Unknown.App")).status == 403

    assert (await tenant.call("DELETE", "delete_package", "Unknown.App")).status == 404

    assert [(entry["user"], entry["status"]) for entry in await entries(tenant)][:2] == [
        ("admin", 404),
        ("token:dashboards", 403),
    ]


async def test_one_entry_says_how_many_refused_writes_are_left_out(
    services: Services, redis_url: str, tenant: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MAX_REFUSALS", 3)
    async with run_gateway(services, redis_url) as address:  # It stops, which ends the minute.
        api = at_gateway(tenant, address)
        for _ in range(5):
            assert (await api.call("DELETE", "delete_package", "Unknown.App")).status == 404
        assert (await api.call("PATCH", "edit_settings", data={"version_key": "installer"})).status == 200

    entry, *others = [row for row in await entries(tenant) if row["operation"] != "login"]

    assert (entry["operation"], entry["target"], entry["user"]) == ("refused_writes", {"left_out": "2"}, "admin")
    assert [row["operation"] for row in others] == ["edit_settings", *["delete_package"] * 3]


class UnreliableAuditLog:
    """A proxy of auth_service. While `away`, it drops `record_audit` requests or their answers."""

    def __init__(self, address: str, *, loses_answers: bool) -> None:
        self.away = True
        self.refused = asyncio.Event()
        self._socket = address.removeprefix("unix:")
        self._loses_answers = loses_answers

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _request(reader)
        recording = b"/record_audit " in request.split(b"\r\n", 1)[0]
        if self.away and recording and not self._loses_answers:
            answer = b""
        else:
            answer = await self._forward(request)
        if self.away and recording:
            self.refused.set()
        else:
            writer.write(answer)
        writer.close()

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self._socket)
        head, _, body = request.partition(b"\r\n\r\n")
        writer.write(head + b"\r\nConnection: close\r\n\r\n" + body)
        answer = await reader.read()
        writer.close()
        return answer


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"\r\nContent-Length: ([0-9]+)", head)
    return head + await reader.readexactly(int(length[1]) if length else 0)


@asynccontextmanager
async def gateway(
    services: Services, redis_url: str, tenant: Api, proxy: UnreliableAuditLog, *, management: str = "127.0.0.1:0"
) -> AsyncIterator[Api]:
    """Run a gateway that reaches auth_service through `proxy`. `management` is its management address."""
    server = await asyncio.start_server(proxy.answer, "127.0.0.1", 0)
    addresses = {**services.addresses, "auth_service": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"}
    urls: dict[str, Any] = {f"{name}_url": addresses[name] for name in SERVICES}
    app = create_app(GatewaySettings(internal_key=KEYS, session_key=KEYS, redis_url=redis_url, **urls))
    async with server, serving(app, "127.0.0.1:0") as address, serving(management_of(app), management):
        yield at_gateway(tenant, address)


async def rotate(api: Api) -> Answer:
    return await api.call("POST", "add_client", data={"client_name": "pc-1"})


async def recorded(api: Api, operation: str) -> list[dict[str, Any]]:
    """Wait for entries of an operation, and return them."""

    async def has_entries() -> bool:
        return bool(await entries(api, operation=operation))

    await until(has_entries)
    return await entries(api, operation=operation)


async def test_a_write_to_an_unreachable_service_is_recorded(services: Services, redis_url: str, tenant: Api) -> None:
    client_id, token = UNKNOWN["client_id"], UNKNOWN["auth_token"]
    async with run_gateway(services, redis_url, client_registry_url="http://127.0.0.1:1") as address:
        answer = await at_gateway(tenant, address).call("DELETE", "delete_client", client_id, token)
        [entry] = await recorded(tenant, "delete_client")

    assert answer.status == 500
    assert (entry["status"], entry["target"]) == (500, {"client_id": client_id})


@pytest.mark.parametrize("loses_answers", [False, True])
async def test_a_write_is_recorded_once_after_an_outage_of_the_log(
    services: Services, redis_url: str, tenant: Api, monkeypatch: pytest.MonkeyPatch, loses_answers: bool
) -> None:
    monkeypatch.setattr(audit, "RETRY_DELAY", 0.01)
    log = UnreliableAuditLog(services.addresses["auth_service"], loses_answers=loses_answers)
    with capture_logs() as logged:
        async with gateway(services, redis_url, tenant, log) as api:
            answer = await rotate(api)
            async with asyncio.timeout(TIMEOUT):
                await log.refused.wait()
            log.away = False
            log_entries = await recorded(tenant, "add_client")

    assert answer.status == 201
    assert [entry["request_id"] for entry in log_entries] == [answer.headers["X-Request-Id"]]
    assert len(await entries(tenant, operation="add_client")) == 1
    delayed = [line["entry"] for line in logged if line["event"] == "audit_delayed"]
    assert delayed
    assert delayed[0] == {
        **{name: log_entries[0][name] for name in ("id", "operation", "user", "ip", "status", "request_id", "target")},
        "changes": {},
        "at": delayed[0]["at"],
    }


async def test_a_stopping_gateway_logs_the_entries_it_cannot_send(
    services: Services, redis_url: str, tenant: Api
) -> None:
    log = UnreliableAuditLog(services.addresses["auth_service"], loses_answers=False)
    management = f"127.0.0.1:{free_port()}"
    with capture_logs() as logged:
        async with gateway(services, redis_url, tenant, log, management=management) as api:
            answer = await rotate(api)
            assert (await fetch_metrics(api.session, f"http://{management}")).value("pkgrepo_audit_waiting") == 1

    [line] = [line for line in logged if line["event"] == "audit_not_recorded"]
    assert [entry["request_id"] for entry in line["entries"]] == [answer.headers["X-Request-Id"]]


def _summary(entry: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(entry[name] for name in ("user", "ip", "operation", "status"))


def _caller(row: Operation) -> tuple[str, str]:
    return ("token:enroller", CALLER[1]) if row.permission in FOR_TOKENS_ONLY else CALLER


def _order(row: Operation) -> tuple[int, int, str]:
    """A sort key: stops of a version come after its other steps, then deletions, the package's at the end."""
    last = ("pause_version", "resume_version", "hold_version", "roll_back_version")
    stop = last.index(row.name) + 1 if row.name in last else 0
    return (row.name.startswith("delete") + (row.name == "delete_package"), stop, row.name)
