"""What services log of a day's work and of its mishaps: whose request it was, and not one secret."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
from yarl import URL

from deploy.folder import SERVICES
from gateway.operations import OPERATIONS
from tests.api import Answer, read_answer
from tests.factories import KEY
from tests.system.estate import UNKNOWN, segments, title
from tests.system.fleet import Fleet, fleet
from tests.system.services import Api, bearer
from tests.system.stores import private_stores
from tests.system.stories import add_package, package_id, publish, publish_in_one_call, upload, version_of
from tests.waiting import until

pytestmark = pytest.mark.attack("S22")

ID = re.compile(r"[0-9a-f]{32}")
SECRET_FIELDS = ("password", "old_password", "new_password", "auth_token", "Auth-Token", "token")
A_TOKEN = "eyJ"  # how whatever is signed as our tokens are begins
TEMPLATES = {f"/{{tenant_id}}/{row.path}" for row in OPERATIONS}


def canary(name: str) -> str:
    return f"canary-{name}-{uuid4().hex[:16]}"


@dataclass
class Day:
    """What was said in confidence, and where it may not turn up: in the logs, and in the answers that are errors."""

    secrets: dict[str, str] = field(default_factory=lambda: {"key": KEY})
    errors: list[Answer] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    upload_id: str = ""

    def new(self, name: str) -> str:
        """A secret to use."""
        self.secrets[name] = canary(name)
        return self.secrets[name]

    async def call(self, api: Api, status: int, method: str, *path: str, **request: Any) -> Answer:
        """Ask what is answered with this status."""
        answer = await api.call(method, *path, **request)
        assert answer.status == status, (path, answer.body)
        if status >= 400:
            self.errors.append(answer)
        return answer

    def lines(self, service: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.logs[service].splitlines()]


@pytest.fixture(scope="module")
async def day() -> Day:
    """One day of a service whose logs tell everything they ever tell."""
    day = Day()
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        async with (
            private_stores(Path(folder)) as stores,
            fleet(stores, {"LOG_LEVEL": "debug"}) as running,
        ):
            api = await running.services.tenant(client_authentication=True)
            await _sign_in_and_out(day, api)
            await _packages(day, api)
            await _clients(day, api)
            await _strangers(day, api)
            await _everywhere(day, api)
            await _mishaps(day, running, api)
            await running.add("catalog_service", environment={"RABBITMQ_URL": f"amqp://u:{day.new('broker')}@[::1]:1/"})
        for name in (*SERVICES, "gateway"):
            day.logs[name] = "".join(file.read_text() for file in sorted(Path(folder).glob(f"{name}-*.log")))
    return day


async def _sign_in_and_out(day: Day, api: Api) -> None:
    password, other = day.new("password"), day.new("new-password")
    await day.call(api, 201, "POST", "add_user", data={"username": "ada", "password": password})
    ada = await api.signed_in("ada", password)
    day.secrets["session"] = ada.headers["Authorization"].removeprefix("Bearer ")
    changed = {"old_password": password, "new_password": other}
    await day.call(ada, 200, "POST", "change_password", data=changed)
    await day.call(ada, 401, "POST", "change_password", data=changed)
    await day.call(ada, 200, "POST", "logout", data={"token": day.secrets["session"]})
    await day.call(ada, 401, "GET", "test")
    guess = {"username": "ada", "password": day.new("guess")}
    await day.call(api.anonymous(), 401, "POST", "login", data=guess)
    await day.call(api.anonymous(), 400, "POST", "login", data={**guess, "username": "x" * 1000})
    await day.call(api.anonymous(), 401, "POST", "sign_in", data=guess)
    await day.call(api, 307, "GET", "docs", headers={"Cookie": f"session-{api.tenant_id}={day.new('cookie')}"})


async def _packages(day: Day, api: Api) -> None:
    name = package_id()
    await add_package(api, name)
    published = await publish(api, name)
    await publish_in_one_call(api, name, "2.0", content=b"2" * 1000)
    link = URL((await version_of(api, published))["INSTALLER_URL"], encoded=True)
    day.secrets["signature"] = link.query["signature"]
    for address, status in ((link, 200), (link.update_query(expires="1"), 403)):
        async with api.session.get(address) as response:
            answer = await read_answer(response)
        assert answer.status == status
        day.errors += [answer] if status >= 400 else []
    waiting = await upload(api, b"3" * 1000)

    async def announced() -> bool:
        listed = (await api.call("GET", "get_finished_uploads")).body
        return waiting in [row["server_filename"] for row in listed]

    await until(announced)
    day.upload_id = waiting.partition(".")[0]


async def _clients(day: Day, api: Api) -> None:
    added = (await day.call(api, 201, "POST", "add_client", data={"client_name": "pc"})).body
    client_id = added["client_id"]
    day.secrets["client token"] = added["auth_token"]
    form = {"auth_token": added["auth_token"], "client": "1"}
    await day.call(api.anonymous(), 200, "POST", "get_packages", data=form)
    await day.call(api.anonymous(), 401, "POST", "client_version", data={"auth_token": day.new("no-client")})
    rotated = (await day.call(api, 200, "POST", "rotate_client_token", client_id)).body
    day.secrets["second client token"] = rotated["auth_token"]
    await day.call(api, 404, "DELETE", "delete_client", client_id, added["auth_token"])
    await day.call(api, 404, "DELETE", "delete_client", client_id, day.new("wrong-token"))
    await day.call(api, 200, "DELETE", "delete_client", client_id, rotated["auth_token"])


async def _strangers(day: Day, api: Api) -> None:
    """Secrets where none belong."""
    stranger = api.anonymous()
    await day.call(stranger, 401, "GET", "test", headers=bearer(day.new("bearer")))
    await day.call(stranger, 401, "GET", "test", headers={"Authorization": f"Basic {day.new('basic')}"})
    await day.call(stranger, 404, "GET", day.new("path"), params={"password": day.new("query")})
    await day.call(stranger, 401, "GET", "test", headers={"X-Internal-Token": day.new("internal")})
    broken = {"Content-Type": "multipart/form-data; boundary=x"}
    await day.call(api, 400, "POST", "add_user", data=f"--x\r\n{day.new('multipart')}", headers=broken)
    await day.call(api, 400, "POST", "add_user", data={"username": "u", "password": f"\0{day.new('control')}"})
    async with api.session.get(f"{api.base_url.rpartition('/')[0]}/{day.new('tenant')}/test") as response:
        day.errors.append(await read_answer(response))


async def _everywhere(day: Day, api: Api) -> None:
    """Every operation is told a secret wherever one can stand, by who may call it and by who may not."""
    for row in OPERATIONS:
        for caller in (api, api.anonymous()):
            secret = day.new(f"{title(row)}-{bool(caller.headers)}")
            answer = await caller.call(
                row.method,
                *segments(row, {**UNKNOWN, "auth_token": secret}),
                params={"signature": secret, "token": secret},
                headers={"X-Internal-Token": secret, "Cookie": f"session-{api.tenant_id}={secret}"},
                data=dict.fromkeys(SECRET_FIELDS, secret),
            )
            assert answer.status < 500, (title(row), answer.body)
            day.errors += [answer] if answer.status >= 400 else []


async def _mishaps(day: Day, running: Fleet, api: Api) -> None:
    """Services and a store go away under requests with secrets in them."""
    (registry,), (uploads,) = running.replicas["client_registry"], running.replicas["upload_service"]
    await registry.kill()
    await uploads.kill()
    client = {"auth_token": day.new("token-in-a-mishap")}
    await day.call(api.anonymous(), 500, "POST", "get_packages", data=client)
    await day.call(api, 500, "DELETE", "delete_client", str(uuid4()), day.new("path-in-a-mishap"))
    await day.call(api, 500, "GET", "download", "x.exe", "y.exe", params={"signature": day.new("link-in-a-mishap")})
    await running.restart_ended()
    running.stores.redis.kill()
    form = {"username": "ada", "password": day.new("password-in-a-mishap")}
    await day.call(api.anonymous(), 500, "POST", "login", data=form)
    await day.call(api, 500, "POST", "add_user", data=form)
    await running.stores.redis.start()


def test_the_logs_hold_no_secret(day: Day) -> None:
    told = "".join(day.logs.values())
    assert len(day.secrets) > 2 * len(OPERATIONS)
    assert A_TOKEN not in told
    assert {name for name, secret in day.secrets.items() if secret in told} == set()


def test_the_errors_hold_no_secret(day: Day) -> None:
    told = "".join(f"{answer.body} {dict(answer.headers)}" for answer in day.errors)
    assert len(day.errors) > len(OPERATIONS)
    assert A_TOKEN not in told
    assert {name for name, secret in day.secrets.items() if secret in told} == set()


@pytest.mark.parametrize("service", [*SERVICES, "gateway"])
def test_every_request_is_logged_by_its_route_and_never_by_its_path(day: Day, service: str) -> None:
    requests = [line for line in day.lines(service) if line["event"] == "request"]
    assert len(requests) > 5
    for line in requests:
        assert ID.fullmatch(line["request_id"])
        assert line["method"].isupper()
        assert line["ms"] >= 0
        assert line["route"] in {*TEMPLATES, "/{path}"} or service != "gateway"
        assert line["route"].startswith("/{tenant_id}/") or line["status"] in {404, 401}


def test_the_gateway_logs_what_became_of_a_request(day: Day) -> None:
    statuses = {
        (line["method"], line["route"], line["status"]) for line in day.lines("gateway") if line["event"] == "request"
    }
    assert statuses >= {
        ("POST", "/{tenant_id}/login", 200),
        ("POST", "/{tenant_id}/login", 401),
        ("POST", "/{tenant_id}/login", 500),
        ("DELETE", "/{tenant_id}/delete_client/{client_id}/{auth_token}", 404),
        ("GET", "/{tenant_id}/download/{server_filename}/{file_name}", 200),
        ("GET", "/{path}", 404),
    }


def test_one_id_leads_from_the_gateway_through_the_services_and_the_event(day: Day) -> None:
    (handled,) = [
        line
        for line in day.lines("catalog_service")
        if line["event"] == "event_handled" and line["event_id"] == day.upload_id
    ]
    for service in ("gateway", "upload_service"):
        routes = [line["route"] for line in day.lines(service) if line.get("request_id") == handled["request_id"]]
        assert routes == ["/{tenant_id}/upload_package_version"]


def test_a_download_has_the_gateway_s_id_in_the_service_too(day: Day) -> None:
    ids = [
        {line["request_id"] for line in day.lines(service) if line.get("route", "").endswith("/{file_name}")}
        for service in ("gateway", "upload_service")
    ]
    assert ids[1] < ids[0]  # One came while the service was away.


def test_each_line_is_of_one_tenant_where_it_is_of_a_tenant(day: Day) -> None:
    tenants = {line["tenant_id"] for line in day.lines("gateway") if line.get("tenant_id")}
    assert len(tenants) == 1
