"""Complete responses have the headers of aiohttp's own; the catch-all route is found without a search."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import ClientSession, web
from prometheus_client import CollectorRegistry
from yarl import URL

from common.http.connection_limits import CATCH_ALL_ROUTE, expect
from common.http.middleware import BytesResponse, observe_requests, problems
from common.http.server import add_probes, serving
from common.telemetry.metrics import RequestMetrics
from tests.support.tables import each

REQUESTS = {
    "a question": b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n",
    "its head": b"HEAD /%b HTTP/1.1\r\nHost: x\r\n\r\n",
    "a form": b"POST /%b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na=1",
    "the last of a connection": b"GET /%b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "HTTP/1.0": b"GET /%b HTTP/1.0\r\nHost: x\r\n\r\n",
    "HTTP/1.0 that goes on": b"GET /%b HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
    "another protocol": b"GET /%b HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    "a body that is asked for": b"POST /%b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
}
ANSWERS: dict[str, Callable[[type[web.Response]], web.Response]] = {
    "words": lambda kind: kind(body=b"words", content_type="text/plain"),
    "nothing": lambda kind: kind(status=201),
    "bytes": lambda kind: kind(body=b"\0\xff"),
    "unchanged": lambda kind: kind(status=304, headers={"ETag": '"7"'}),
    "no-content": lambda kind: kind(status=204),
    "a-problem": lambda kind: kind(body=b"{}", status=404, content_type="application/problem+json"),
}


@pytest.fixture(scope="module")
async def addresses() -> AsyncIterator[dict[type[web.Response], str]]:
    """Two servers of the same responses, one with each response class."""

    def app(kind: type[web.Response]) -> web.Application:
        async def answer(request: web.Request) -> web.StreamResponse:
            return ANSWERS.get(request.path[1:], ANSWERS["words"])(kind)

        application = web.Application(middlewares=[problems])
        add_probes(application)
        application[CATCH_ALL_ROUTE] = application.router.add_route("*", "/{path:.*}", answer, expect_handler=expect)
        return application

    async with serving(app(web.Response), "127.0.0.1:0") as usual, serving(app(BytesResponse), "127.0.0.1:0") as custom:
        yield {web.Response: usual, BytesResponse: custom}


async def received(address: str, request: bytes) -> list[bytes]:
    """The sorted lines of the response until the connection ends, without lines that always differ."""
    url = URL(address)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(request)
    if b"close" not in request and b"1.0\r\nHost: x\r\n\r\n" not in request:
        writer.write(b"GET /words HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    lines = (await reader.read()).split(b"\r\n")
    writer.close()
    await writer.wait_closed()
    return [line for line in sorted(lines) if not line.startswith((b"X-Request-Id: ", b"Date: "))]


@each("name", ANSWERS)
@each("request_", REQUESTS.values(), ids=REQUESTS.keys())
async def test_a_complete_response_equals_the_response_of_aiohttp(
    addresses: dict[type[web.Response], str], request_: bytes, name: str
) -> None:
    request_bytes = request_.replace(b"%b", name.encode())

    usual, custom = [await received(address, request_bytes) for address in addresses.values()]

    assert b"Server: pkgrepo" in custom
    assert custom == usual


@each("path", ["livez", "readyz", "livez?a=1"])
async def test_the_catch_all_route_does_not_handle_probes(addresses: dict[type[web.Response], str], path: str) -> None:
    async with ClientSession() as session, session.get(f"{addresses[BytesResponse]}/{path}") as answer:
        assert (await answer.json())["status"] in {"alive", "ready"}


async def test_the_catch_all_route_sends_100_continue(
    addresses: dict[type[web.Response], str],
) -> None:
    request_bytes = REQUESTS["a body that is asked for"].replace(b"%b", b"words")

    assert b"HTTP/1.1 100 Continue" in await received(addresses[BytesResponse], request_bytes)


async def test_a_failure_within_a_response_closes_the_connection() -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"half")
        raise OSError("no descriptor is left")

    registry = CollectorRegistry()
    requests = RequestMetrics("tests", registry)
    app = web.Application(middlewares=[observe_requests(requests, logged=False), problems])
    app.router.add_get("/{tenant_id}/half", half)
    async with serving(app, "127.0.0.1:0") as address, asyncio.timeout(60):
        url = URL(address)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(b"GET /acme/half HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.read()).endswith(b"\r\n\r\nhalf")
        writer.close()

    broken_off = {"service": "tests", "method": "GET", "route": "/{tenant_id}/half", "status": "broken_off"}
    assert registry.get_sample_value("pkgrepo_requests_total", broken_off) == 1
