"""Whatever goes wrong is told in one form: problem details with the request's id, and nothing of our insides."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import ClientTimeout, web
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs
from yarl import URL

from common.caller import Deployment
from common.middleware.fellows import REQUEST_IDS
from common.server import serving
from gateway.app import create_app
from gateway.operations import CATALOG, OPERATIONS, Operation
from gateway.settings import GatewaySettings
from tests.support.api import Answer, read_answer
from tests.support.factories import KEYS, make_tenant
from tests.support.whole.raw import read_raw, send_raw
from tests.support.whole.services import SINGLE_TENANT, Api, Services
from tests.support.whole.stories import INSTALLER, add_package, package_id, publish, send_chunk, upload, version_of

NOWHERE = "http://127.0.0.1:1"  # a port that nobody listens on
PATIENCE = ClientTimeout(total=10)  # far more than the 3 seconds within which a service that is away has to be told of
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TITLES = {407: "Storage Exceeded"}  # The interface has a meaning of its own for it.
MEMBERS = ["type", "title", "status", "detail", "code", "request_id"]
PLACE = ["received", "total"]  # Where a transfer stands, told of a refused chunk as far as it is known.


Entries = list[MutableMapping[str, Any]]


@pytest.fixture(autouse=True)
def logged() -> Iterator[Entries]:
    """What the services write to their logs during a test."""
    with capture_logs(processors=[merge_contextvars]) as entries:
        yield entries


def check_problem(answer: Answer, status: int, code: str) -> None:
    """An error in the form that the interface promises (decision 11)."""
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert [name for name in answer.body if name not in PLACE] == MEMBERS
    assert (answer.body["status"], answer.body["code"], answer.body["type"]) == (status, code, "about:blank")
    assert answer.body["title"] == TITLES.get(status, HTTPStatus(status).phrase)
    assert answer.body["detail"]
    assert REQUEST_IDS.fullmatch(answer.body["request_id"])
    assert answer.headers["X-Request-Id"] == answer.body["request_id"]


def check_told(row: Operation, answer: Answer, status: int, code: str) -> None:
    """An error as the operation's protocol tells it."""
    if not row.of_winget:
        check_problem(answer, status, code)
        return
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/json")
    detail = answer.body["message"]
    assert detail
    assert answer.body == {"code": status, "message": detail, "ErrorCode": status, "ErrorMessage": detail}


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


Wrong = Callable[[Api], Awaitable[Answer]]
PROBLEMS: dict[str, tuple[Wrong, int, str]] = {
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


@pytest.mark.parametrize("wrong", PROBLEMS)
async def test_what_is_wrong_is_told_as_a_problem(either: Api, wrong: str) -> None:
    do, status, code = PROBLEMS[wrong]

    check_problem(await do(either), status, code)


async def test_a_full_storage_is_told_as_a_problem(services: Services) -> None:
    api = await services.tenant(storage_quota=10)

    check_problem(await send_chunk(api, uuid4().hex, b"0" * 11, 0, 11), 407, "storage_exceeded")


async def test_a_client_too_many_is_told_as_a_problem(services: Services) -> None:
    api = await services.tenant(max_clients=0)

    answer = await api.call("POST", "add_client", data={"client_name": "pc-1"})

    check_problem(answer, 403, "client_limit_exceeded")


async def test_a_network_that_is_not_allowed_is_told_as_a_problem(services: Services, tenant: Api) -> None:
    closed = make_tenant(allowed_networks=("192.0.2.1",))
    await services.operator.tenants.create(closed)

    answer = await services.api(closed.tenant_id).call("GET", "test", headers=tenant.headers)

    check_problem(answer, 403, "network_not_allowed")


@pytest.mark.parametrize(
    "path", ["/", "//", "/favicon.ico", "/client", "/metrics", "/%ff/test", "/{t}", "/{t}/", "/a b"]
)
@pytest.mark.parametrize("deployment", list(Deployment))
async def test_an_unknown_address_is_told_as_a_problem(services: Services, deployment: Deployment, path: str) -> None:
    path = path.replace("{t}", SINGLE_TENANT).replace(" ", "%20")

    answer = await send_raw(services.addresses[deployment], "GET", path)

    check_problem(answer, 404, "operation_not_found")


async def test_an_unknown_tenant_is_told_as_a_problem(services: Services) -> None:
    check_problem(await services.api("nobody").call("GET", "test"), 404, "tenant_not_found")


@pytest.mark.parametrize("operation", sorted({row.word for row in OPERATIONS}))
async def test_another_method_is_told_which_there_are(tenant: Api, operation: str) -> None:
    row = next(row for row in OPERATIONS if row.word == operation)
    answer = await tenant.call("PROPFIND", *row.path.split("/"))

    check_problem(answer, 405, "method_not_allowed")
    methods = sorted({other.method for other in OPERATIONS if other.path == row.path})
    assert answer.headers["Allow"].replace("GET, HEAD", "GET") == ", ".join(methods)


async def test_a_range_beyond_the_file_is_told_its_length(tenant: Api) -> None:
    answer = await _download(tenant, {"Range": "bytes=10-"})

    assert answer.headers["Content-Range"] == "bytes */10"


@pytest.mark.parametrize("operation", ["test", "nothing", "download"])
async def test_an_error_to_head_has_the_id_and_no_body(either: Api, operation: str) -> None:
    answer = await either.anonymous().call("HEAD", operation)

    assert answer.status >= 400
    assert REQUEST_IDS.fullmatch(answer.headers["X-Request-Id"])
    assert not answer.body


async def test_each_request_has_an_id_of_its_own_whatever_the_caller_says(tenant: Api) -> None:
    mine = "ab" * 16
    headers = {"X-Request-Id": mine, "X-Internal-Request-Id": mine}
    ids = {(await tenant.call("GET", "get_users", headers=headers)).headers["X-Request-Id"] for _ in range(3)}

    assert len(ids) == 3
    assert mine not in ids


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


@pytest.mark.parametrize("name", MALFORMED)
async def test_what_is_no_request_is_told_as_a_problem(services: Services, name: str) -> None:
    url = URL(services.addresses[Deployment.MULTI])
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        writer.write(MALFORMED[name])
        answer = read_raw(await reader.read(), "GET")  # to the end: the connection is closed
    finally:
        writer.close()
        await writer.wait_closed()

    check_problem(answer, 400, "invalid_request")
    assert answer.headers["Server"] == "pkgrepo"


@asynccontextmanager
async def gateway(services: Services, redis: str, **away: str) -> AsyncIterator[str]:
    """A gateway that finds some services elsewhere than they are."""
    addresses = {f"{name}_url": services.addresses[name] for name in ("auth_service", CATALOG, "upload_service")}
    key: Any = KEYS
    settings = GatewaySettings(
        **{
            "internal_key": key,
            "session_key": key,
            "redis_url": redis,
            "client_registry_url": services.addresses["client_registry"],
            **addresses,
            **away,
        }
    )
    async with serving(create_app(settings), "127.0.0.1:0") as address:
        yield address


async def call(address: str, api: Api, method: str, *path: str, **request: Any) -> Answer:
    """Call an operation through another gateway."""
    url = "/".join([address, api.tenant_id, *path])
    async with api.session.request(method, url, headers=api.headers, timeout=PATIENCE, **request) as response:
        return await read_answer(response)


@pytest.mark.parametrize("row", [row for row in OPERATIONS if row.service == CATALOG], ids=lambda row: row.word)
async def test_a_service_that_is_away_is_told_of_in_time(
    services: Services, redis_url: str, tenant: Api, row: Operation
) -> None:
    async with gateway(services, redis_url, catalog_service_url=NOWHERE) as address:
        answer = await call(address, tenant, row.method, *row.parts, data={"package_id": "a"} if row.audited else None)

    check_told(row, answer, 500, "dependency_unavailable")
    assert int(answer.headers["Retry-After"]) > 0


@pytest.mark.parametrize("away", ["auth_service_url", "redis_url"])
async def test_nobody_is_let_in_without_what_knows_them(
    services: Services, redis_url: str, tenant: Api, away: str, logged: Entries
) -> None:
    nowhere = "redis://127.0.0.1:1/0" if away == "redis_url" else NOWHERE
    async with gateway(services, redis_url, **{away: nowhere}) as address:
        answer = await call(address, tenant, "GET", "test")

    check_problem(answer, 500, "dependency_unavailable")
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.body["request_id"] in {entry["request_id"] for entry in logged if entry["log_level"] == "error"}


async def test_an_answer_that_is_none_of_ours_is_not_passed_on(services: Services, redis_url: str, tenant: Api) -> None:
    async def crash(_: web.Request) -> web.Response:
        return web.Response(status=500, text='Traceback: File "/srv/store.py", pymongo.errors.AutoReconnect')

    broken = web.Application()
    broken.router.add_route("*", "/{path:.*}", crash)
    async with AsyncExitStack() as stack:
        catalog = await stack.enter_async_context(serving(broken, "127.0.0.1:0"))
        address = await stack.enter_async_context(gateway(services, redis_url, catalog_service_url=catalog))
        answer = await call(address, tenant, "POST", "get_packages")

    check_problem(answer, 500, "dependency_unavailable")


@pytest.mark.parametrize("wrong", [-1, True, 1.5, "7", None, [7]])
async def test_of_a_problem_s_own_members_only_those_of_a_transfer_are_passed_on(
    services: Services, redis_url: str, tenant: Api, wrong: object
) -> None:
    async def refuse(_: web.Request) -> web.Response:
        told = {"detail": "Not so.", "code": "unexpected_chunk", "received": 7, "total": wrong, "fence": 7}
        return web.json_response(told, status=400)

    refusing = web.Application()
    refusing.router.add_route("*", "/{path:.*}", refuse)
    async with AsyncExitStack() as stack:
        catalog = await stack.enter_async_context(serving(refusing, "127.0.0.1:0"))
        address = await stack.enter_async_context(gateway(services, redis_url, catalog_service_url=catalog))
        answer = await call(address, tenant, "POST", "get_packages")

    assert list(answer.body) == [*MEMBERS, "received"]
    assert answer.body["received"] == 7
