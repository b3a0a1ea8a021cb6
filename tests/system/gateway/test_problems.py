"""Every error is a problem with the request's id, and reveals no internals."""

import asyncio
import io
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs
from yarl import URL

from common.auth.internal_tokens import Deployment
from common.http.middleware import REQUEST_IDS
from tests.support.api import Answer, read_answer
from tests.support.system.gateways import at_gateway, run_gateway
from tests.support.system.problems import MEMBERS, check_problem
from tests.support.system.publishing import INSTALLER, add_package, package_id, publish, send_chunk, upload, version_of
from tests.support.system.raw_http import read_raw, send_raw
from tests.support.system.safe_headers import check_safe
from tests.support.system.services import SINGLE_TENANT, Api, Services
from tests.support.system.stub_service import serve_handler
from tests.support.tables import every_cell

NOWHERE = "http://127.0.0.1:1"  # a port without a server
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
Entries = list[MutableMapping[str, Any]]


@pytest.fixture
def logged() -> Iterator[Entries]:
    """The log entries of the services during a test."""
    with capture_logs(processors=[merge_contextvars]) as entries:
        yield entries


async def _package_exists(api: Api) -> Answer:
    name = package_id()
    await add_package(api, name)
    return await api.call(
        "POST", "add_package", data={"package_id": name, "package_name": "a", "package_publisher": "a"}
    )


async def _version_exists(api: Api) -> Answer:
    name = package_id()
    await add_package(api, name)
    await publish(api, name)
    form = {**INSTALLER, "package_version": "1.0", "server_filename": await upload(api, b"other bytes")}
    return await api.call("POST", "add_package_version", name, data=form)


async def _download(api: Api, headers: dict[str, str] | None = None, *, alter: bool = False) -> Answer:
    name = package_id()
    await add_package(api, name)
    url = (await version_of(api, await publish(api, name, content=b"0123456789")))["INSTALLER_URL"]
    url = f"{url[:-1]}{'1' if url[-1] == '0' else '0'}" if alter else url
    async with api.session.get(URL(url, encoded=True), headers=headers or {}) as response:
        return await read_answer(response)


async def _chunk_out_of_order(api: Api) -> Answer:
    return await send_chunk(api, uuid4().hex, b"0123456789", 5, 10)


Request = Callable[[Api], Awaitable[Answer]]
PROBLEMS: dict[str, tuple[Request, int, str]] = {
    "a field is missing": (lambda api: api.call("POST", "login", data={}), 400, "invalid_field"),
    "a body is not a form": (lambda api: api.call("POST", "login", json={}), 400, "invalid_request"),
    "a part of the address is missing": (lambda api: api.call("DELETE", "delete_user"), 400, "invalid_request"),
    "a chunk is out of order": (_chunk_out_of_order, 400, "unexpected_chunk"),
    "credentials are wrong": (
        lambda api: api.call("POST", "login", data={"username": uuid4().hex, "password": "a"}),
        401,
        "bad_credentials",
    ),
    "no token is sent": (lambda api: api.anonymous().call("GET", "test"), 401, "not_authenticated"),
    "a package exists": (_package_exists, 401, "package_exists"),
    "a download address was altered": (lambda api: _download(api, alter=True), 403, "forbidden"),
    "an operation is unknown": (lambda api: api.call("GET", "nothing"), 404, "operation_not_found"),
    "an operation has more parts": (lambda api: api.call("GET", "test", "more"), 404, "operation_not_found"),
    "a package is unknown": (lambda api: api.call("GET", "get_package_versions", "No.Such"), 404, "package_not_found"),
    "a version is unknown": (
        lambda api: api.call("GET", "get_specific_package_version", str(uuid4())),
        404,
        "version_not_found",
    ),
    "a user is unknown": (lambda api: api.call("DELETE", "delete_user", "nobody"), 404, "user_not_found"),
    "a method is another's": (lambda api: api.call("PUT", "login"), 405, "method_not_allowed"),
    "a version exists": (_version_exists, 409, "version_exists"),
    "a body is too long": (
        lambda api: api.call("POST", "login", data=io.BytesIO(b"username=" + b"a" * (2 << 20)), headers=FORM),
        413,
        "body_too_large",
    ),
    "a file is another's": (lambda api: _download(api, {"If-Match": '"other"'}), 412, "precondition_failed"),
    "a range lies beyond the file": (lambda api: _download(api, {"Range": "bytes=10-"}), 416, "range_not_satisfiable"),
}


async def test_every_error_is_a_problem(either: Api) -> None:
    with every_cell() as cell:
        for name, (request, status, code) in PROBLEMS.items():
            with cell(name):
                check_problem(await request(either), status, code)


async def test_a_limit_of_the_tenant_is_a_problem(services: Services) -> None:
    api = await services.tenant(storage_quota=10, max_clients=0)
    check_problem(await send_chunk(api, uuid4().hex, b"0" * 11, 0, 11), 407, "storage_exceeded")
    check_problem(await api.call("POST", "add_client", data={"client_name": "pc-1"}), 403, "client_limit_exceeded")
    await services.operator.tenants.edit(api.tenant_id, {"allowed_networks": ("192.0.2.1",)})
    check_problem(await api.call("GET", "test"), 403, "network_not_allowed")


async def test_an_unknown_address_is_a_problem(services: Services) -> None:
    tenant = f"/{SINGLE_TENANT}"
    with every_cell() as cell:
        for deployment in Deployment:
            for path in ("/", "//", "/favicon.ico", "/client", "/metrics", "/%ff/test", tenant, f"{tenant}/", "/a%20b"):
                with cell(deployment, path):
                    answer = await send_raw(services.addresses[deployment], "GET", path)
                    check_problem(answer, 404, "operation_not_found")


async def test_an_error_to_head_has_the_id_and_no_body(either: Api) -> None:
    for operation in ("test", "nothing", "download"):
        answer = await either.anonymous().call("HEAD", operation)

        assert answer.status >= 400
        assert REQUEST_IDS.fullmatch(answer.headers["X-Request-Id"])
        assert not answer.body


MALFORMED = {
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "an unknown version": b"GET / HTTP/9.9\r\n\r\n",
    "a header without a name": b"GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n",
    "a NUL in a header": b"GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
    "a header too long": b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 9000 + b"\r\n\r\n",
    "an address too long": b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a length that is none": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
}


async def test_an_invalid_request_is_a_problem(services: Services) -> None:
    url = URL(services.addresses[Deployment.MULTI])
    with every_cell() as cell:
        for name, sent in MALFORMED.items():
            with cell(name):
                reader, writer = await asyncio.open_connection(url.host, url.port)
                try:
                    writer.write(sent)
                    answer = read_raw(await reader.read(), "GET")  # until the connection is closed
                finally:
                    writer.close()
                    await writer.wait_closed()
                check_problem(answer, 400, "invalid_request")
                check_safe(answer)


@pytest.mark.parametrize("away", [{"auth_service_url": NOWHERE}, {"redis_url": "redis://127.0.0.1:1/0"}], ids=str)
async def test_sessions_are_rejected_while_a_dependency_is_unavailable(
    services: Services, redis_url: str, tenant: Api, away: dict[str, str], logged: Entries
) -> None:
    async with run_gateway(services, **{"redis_url": redis_url, **away}) as address:
        answer = await at_gateway(tenant, address).call("GET", "test")

    check_problem(answer, 500, "dependency_unavailable")
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.body["request_id"] in {entry["request_id"] for entry in logged if entry["log_level"] == "error"}


async def test_a_problem_passes_on_only_members_of_a_transfer(services: Services, redis_url: str, tenant: Api) -> None:
    wrong: object = None

    async def refuse(_: web.Request) -> web.Response:
        problem = {"detail": "Not so.", "code": "unexpected_chunk", "received": 7, "total": wrong, "fence": 7}
        return web.json_response(problem, status=400)

    async with (
        serve_handler(refuse) as catalog,
        run_gateway(services, redis_url, catalog_service_url=catalog) as address,
    ):
        for wrong in (-1, True, 1.5, "7", None, [7]):
            answer = await at_gateway(tenant, address).call("POST", "get_packages")
            assert list(answer.body) == [*MEMBERS, "received"], wrong
            assert answer.body["received"] == 7
