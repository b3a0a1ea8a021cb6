"""A scenario of normal work and outages, with secrets in requests. Tests search the logs and traces for them."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from yarl import URL

from common.auth.signing import ApiToken
from deploy.local.folder import SERVICES
from gateway.operations import OPERATIONS
from tests.support.api import Answer, read_answer
from tests.support.factories import KEY
from tests.support.processes.cluster import Cluster, run_cluster
from tests.support.servers.otlp_server import Collector, run_collector
from tests.support.servers.stores import private_stores
from tests.support.system.publishing import add_package, package_id, publish, publish_in_one_call, upload, version_of
from tests.support.system.seed import UNKNOWN, segments, title
from tests.support.system.services import Api, bearer
from tests.support.wait import until

SECRET_FIELDS = ("password", "old_password", "new_password", "auth_token", "Auth-Token", "token")
FAST_EXPORT = {"OTEL_BSP_SCHEDULE_DELAY": "200"}  # milliseconds, because a killed service exports nothing


def canary(name: str) -> str:
    return f"canary-{name}-{uuid4().hex[:16]}"


@dataclass
class LogScenario:
    """The secrets of the scenario, and the texts that must not have them: logs, traces and error responses."""

    collector: Collector
    secrets: dict[str, str] = field(default_factory=lambda: {"key": KEY})
    errors: list[Answer] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    upload_id: str = ""

    def new(self, name: str) -> str:
        """Create a secret."""
        self.secrets[name] = canary(name)
        return self.secrets[name]

    async def call(self, api: Api, status: int, method: str, *path: str, **request: Any) -> Answer:
        """Send a request, and check its status."""
        answer = await api.call(method, *path, **request)
        assert answer.status == status, (path, answer.body)
        if status >= 400:
            self.errors.append(answer)
        return answer

    def lines(self, service: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.logs[service].splitlines()]


@asynccontextmanager
async def run_log_scenario() -> AsyncIterator[LogScenario]:
    """Run the scenario with debug logs and traces."""
    async with run_collector() as collector:
        scenario = LogScenario(collector)
        await _run(scenario, {"LOG_LEVEL": "debug", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **FAST_EXPORT})
        yield scenario


async def _run(scenario: LogScenario, environment: Mapping[str, str]) -> None:
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        async with private_stores(Path(folder)) as stores, run_cluster(stores, environment) as cluster:
            api = await cluster.services.tenant(client_authentication=True)
            await _sign_in_and_out(scenario, api)
            await _packages(scenario, api)
            await _clients(scenario, api)
            await _api_tokens(scenario, api)
            await _unauthenticated_requests(scenario, api)
            await call_everywhere(scenario, api)
            async with api.session.get(URL(api.base_url).with_path("/metrics")) as response:
                scenario.logs["metrics"] = await response.text()
            await _outages(scenario, cluster, api)
            await cluster.add(
                "catalog_service", environment={"RABBITMQ_URL": f"amqp://u:{scenario.new('broker')}@[::1]:1/"}
            )
        for name in (*SERVICES, "gateway"):
            scenario.logs[name] = "".join(file.read_text() for file in sorted(Path(folder).glob(f"{name}-*.log")))


async def _sign_in_and_out(scenario: LogScenario, api: Api) -> None:
    password, other = scenario.new("password"), scenario.new("new-password")
    await scenario.call(api, 201, "POST", "add_user", data={"username": "ada", "password": password})
    ada = await api.signed_in("ada", password)
    scenario.secrets["session"] = ada.headers["Authorization"].removeprefix("Bearer ")
    changed = {"old_password": password, "new_password": other}
    await scenario.call(ada, 200, "POST", "change_password", data=changed)
    await scenario.call(
        ada, 401, "POST", "change_password", data={**changed, "new_password": scenario.new("another-password")}
    )
    await scenario.call(ada, 200, "POST", "logout", data={"token": scenario.secrets["session"]})
    await scenario.call(ada, 401, "GET", "test")
    guess = {"username": "ada", "password": scenario.new("guess")}
    await scenario.call(api.anonymous(), 401, "POST", "login", data=guess)
    await scenario.call(api.anonymous(), 400, "POST", "login", data={**guess, "username": "x" * 1000})
    await scenario.call(api.anonymous(), 401, "POST", "sign_in", data=guess)
    await scenario.call(
        api, 307, "GET", "docs", headers={"Cookie": f"session-{api.tenant_id}={scenario.new('cookie')}"}
    )


async def _packages(scenario: LogScenario, api: Api) -> None:
    name = package_id()
    await add_package(api, name)
    published = await publish(api, name)
    await publish_in_one_call(api, name, "2.0", content=b"2" * 1000)
    link = URL((await version_of(api, published))["INSTALLER_URL"], encoded=True)
    scenario.secrets["signature"] = link.query["signature"]
    for address, status in ((link, 200), (link.update_query(expires="1"), 403)):
        async with api.session.get(address) as response:
            answer = await read_answer(response)
        assert answer.status == status
        scenario.errors += [answer] if status >= 400 else []
    pending = await upload(api, b"3" * 1000)

    async def announced() -> bool:
        listed = (await api.call("GET", "get_finished_uploads")).body
        return pending in [row["server_filename"] for row in listed]

    await until(announced)
    scenario.upload_id = pending.partition(".")[0]


async def _api_tokens(scenario: LogScenario, api: Api) -> None:
    form = {"name": "ci", "role": "publisher", "package_ids": "Acme.*"}
    added = (await scenario.call(api, 201, "POST", "add_token", data=form)).body
    rotated = (
        await scenario.call(api, 200, "POST", "rotate_token", added["token_id"], data={"overlap_hours": "1"})
    ).body
    for name, text in (("API token", added["token"]), ("second API token", rotated["token"])):
        scenario.secrets[name] = text.split("_")[2]
        scenario.secrets[f"digest of the {name}"] = ApiToken.parse(text).digest
        pipeline, package = replace(api, headers=bearer(text)), package_id()
        await add_package(pipeline, package)
        await publish(pipeline, package)
        await scenario.call(pipeline, 403, "DELETE", "delete_package", "Other.App")
        await scenario.call(pipeline, 401, "POST", "change_password", data={})
        await scenario.call(replace(api, headers=bearer(f"{text}x")), 401, "GET", "test")
        await scenario.call(api.anonymous(), 401, "POST", "get_packages", data={"auth_token": text})
    log = await scenario.call(api, 200, "GET", "get_audit_log", params={"limit": "1000"})
    scenario.logs["audit log"] = str(log.body)
    await scenario.call(api, 200, "DELETE", "delete_token", added["token_id"])
    await scenario.call(replace(api, headers=bearer(rotated["token"])), 401, "GET", "test")


async def _clients(scenario: LogScenario, api: Api) -> None:
    added = (await scenario.call(api, 201, "POST", "add_client", data={"client_name": "pc"})).body
    client_id = added["client_id"]
    scenario.secrets["client token"] = added["auth_token"]
    form = {"auth_token": added["auth_token"], "client": "1"}
    await scenario.call(api.anonymous(), 200, "POST", "get_packages", data=form)
    await scenario.call(api.anonymous(), 401, "POST", "client_version", data={"auth_token": scenario.new("no-client")})
    await _source_addresses(scenario, api, added["auth_token"])
    rotated = (await scenario.call(api, 200, "POST", "rotate_client_token", client_id)).body
    scenario.secrets["second client token"] = rotated["auth_token"]
    await scenario.call(api, 404, "DELETE", "delete_client", client_id, added["auth_token"])
    await scenario.call(api, 404, "DELETE", "delete_client", client_id, scenario.new("wrong-token"))
    await scenario.call(api, 200, "DELETE", "delete_client", client_id, rotated["auth_token"])


async def _source_addresses(scenario: LogScenario, api: Api, token: str) -> None:
    """Use a personal source address, and addresses that do not exist."""
    anonymous, wrong = api.anonymous(), scenario.new("source-address")
    for text, refused in ((token, 0), (wrong, 401)):
        source = ("source", text, "winget")
        await scenario.call(anonymous, refused or 200, "GET", *source, "information")
        query = {"FetchAllManifests": True}
        await scenario.call(anonymous, refused or 200, "POST", *source, "manifestSearch", json=query)
        await scenario.call(anonymous, refused or 204, "GET", *source, "packageManifests", "No.Such")
        await scenario.call(anonymous, 404, "GET", "source", text, "get_packages")


async def _unauthenticated_requests(scenario: LogScenario, api: Api) -> None:
    """Send secrets in unexpected places."""
    anonymous = api.anonymous()
    await scenario.call(anonymous, 401, "GET", "test", headers=bearer(scenario.new("bearer")))
    traced = {"tracestate": f"x={scenario.new('tracestate')}", "baggage": scenario.new("baggage")}
    await scenario.call(anonymous, 401, "GET", "test", headers=traced)
    await scenario.call(anonymous, 401, "GET", "test", headers={"Authorization": f"Basic {scenario.new('basic')}"})
    await scenario.call(anonymous, 404, "GET", scenario.new("path"), params={"password": scenario.new("query")})
    await scenario.call(anonymous, 401, "GET", "test", headers={"X-Internal-Token": scenario.new("internal")})
    broken = {"Content-Type": "multipart/form-data; boundary=x"}
    await scenario.call(api, 400, "POST", "add_user", data=f"--x\r\n{scenario.new('multipart')}", headers=broken)
    await scenario.call(
        api, 400, "POST", "add_user", data={"username": "u", "password": f"\0{scenario.new('control')}"}
    )
    async with api.session.get(f"{api.base_url.rpartition('/')[0]}/{scenario.new('tenant')}/test") as response:
        scenario.errors.append(await read_answer(response))


async def call_everywhere(scenario: LogScenario, api: Api) -> None:
    """Call every operation with a secret in each place of the request, with a session and without one."""
    for row in OPERATIONS:
        for caller in (api, api.anonymous()):
            secret = scenario.new(f"{title(row)}-{bool(caller.headers)}")
            answer = await caller.call(
                row.method,
                *segments(row, {**UNKNOWN, "auth_token": secret}),
                params={"signature": secret, "token": secret},
                headers={
                    "X-Internal-Token": secret,
                    "Cookie": f"session-{api.tenant_id}={secret}",
                    "Windows-Package-Manager": secret,
                },
                data=dict.fromkeys(SECRET_FIELDS, secret),
            )
            assert answer.status < 500, (title(row), answer.body)
            scenario.errors += [answer] if answer.status >= 400 else []


async def _outages(scenario: LogScenario, cluster: Cluster, api: Api) -> None:
    """Stop services and a store, and send requests with secrets."""
    (registry,), (uploads,) = cluster.replicas["client_registry"], cluster.replicas["upload_service"]
    await registry.kill()
    await uploads.kill()
    client = {"auth_token": scenario.new("token-in-an-outage")}
    await scenario.call(api.anonymous(), 500, "POST", "get_packages", data=client)
    await scenario.call(api, 500, "DELETE", "delete_client", str(uuid4()), scenario.new("path-in-an-outage"))
    await scenario.call(
        api, 500, "GET", "download", "x.exe", "y.exe", params={"signature": scenario.new("link-in-an-outage")}
    )
    await cluster.restart_exited()
    cluster.stores.redis.kill()
    form = {"username": "ada", "password": scenario.new("password-in-an-outage")}
    await scenario.call(api.anonymous(), 500, "POST", "login", data=form)
    await scenario.call(api, 500, "POST", "add_user", data=form)
    await cluster.stores.redis.start()
