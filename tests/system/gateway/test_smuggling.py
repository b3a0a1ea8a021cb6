"""Requests that parsers could split differently: the service receives exactly the sent request, or nothing."""

import asyncio
import re
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from tests.support.system.gateways import run_gateway
from tests.support.system.services import Api, Services
from tests.support.system.stub_service import StubService, run_stub_service
from tests.support.tables import every_cell
from tests.support.wait import TIMEOUT

OUTER = ("add_package", "upload_package_version")  # read before the call of a service, and streamed to it
BODY = b"abcd"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
# {inner} is a smuggled request in the body. The headers are the list of lines.
REFUSED: dict[str, tuple[bytes, bytes]] = {
    "a length and chunks": (b"Content-Length: 5\r\n" + CHUNKED, b"0\r\n\r\n{inner}"),
    "chunks and a length": (CHUNKED + b"Content-Length: 5\r\n", b"0\r\n\r\n{inner}"),
    "chunks and a length that ends before them": (CHUNKED + b"Content-Length: 4\r\n", b"4\r\nabcd\r\n0\r\n\r\n{inner}"),
    "a coding that is nearly chunked": (b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n{inner}"),
    "a coding in quotes": (b'Transfer-Encoding: "chunked"\r\n', b"0\r\n\r\n{inner}"),
    "a coding after a control character": (b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n{inner}"),
    "a space before the colon": (b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n{inner}"),
    "a folded coding": (b"Transfer-Encoding:\r\n chunked\r\n", b"0\r\n\r\n{inner}"),
    "chunked, then another coding": (b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n{inner}"),
    "two codings": (CHUNKED + b"Transfer-Encoding: identity\r\n", b"0\r\n\r\n{inner}"),
    "chunked twice": (CHUNKED + CHUNKED, b"0\r\n\r\n{inner}"),
    "a compressed transfer": (b"Transfer-Encoding: gzip, chunked\r\nContent-Length: 4\r\n", b"0\r\n\r\n{inner}"),
    "identity and a length": (b"Transfer-Encoding: identity\r\nContent-Length: 4\r\n", b"abcd{inner}"),
    "two lengths": (b"Content-Length: 0\r\nContent-Length: 4\r\n", b"abcd{inner}"),
    "one length twice": (b"Content-Length: 4\r\nContent-Length: 4\r\n", b"abcd{inner}"),
    "a list of lengths": (b"Content-Length: 4, 4\r\n", b"abcd{inner}"),
    "a length with a sign": (b"Content-Length: +4\r\n", b"abcd{inner}"),
    "a negative length": (b"Content-Length: -4\r\n", b"abcd{inner}"),
    "a hexadecimal length": (b"Content-Length: 0x4\r\n", b"abcd{inner}"),
    "a length in two parts": (b"Content-Length: 4 4\r\n", b"abcd{inner}"),
    "a length with an underscore": (b"Content-Length: 0_4\r\n", b"abcd{inner}"),
    "a length without end": (b"Content-Length: 18446744073709551620\r\n", b"abcd{inner}"),
    "a length after a NUL": (b"Content-Length\0: 4\r\n", b"abcd{inner}"),
    "a line that ends with LF": (b"X: a\nContent-Length: 0\r\nContent-Length: 4\r\n", b"abcd{inner}"),
    "a line that ends with CR": (b"X: a\rContent-Length: 4\r\n", b"abcd{inner}"),
    "a head that ends with LF": (b"Content-Length: 4\n\n", b"abcd{inner}"),
    "two hosts": (b"Host: y\r\nContent-Length: 4\r\n", b"abcd{inner}"),
    "a chunk of hexadecimal length": (CHUNKED, b"0x4\r\nabcd\r\n0\r\n\r\n{inner}"),
    "a chunk with a sign": (CHUNKED, b"+4\r\nabcd\r\n0\r\n\r\n{inner}"),
    "a chunk of negative length": (CHUNKED, b"-1\r\nabcd\r\n0\r\n\r\n{inner}"),
    "a chunk with a space": (CHUNKED, b"4 \r\nabcd\r\n0\r\n\r\n{inner}"),
    "a chunk without end": (CHUNKED, b"10000000000000004\r\nabcd\r\n0\r\n\r\n{inner}"),
    "a chunk longer than its size": (CHUNKED, b"3\r\nabcd\r\n0\r\n\r\n{inner}"),
    "a chunk that ends with LF": (CHUNKED, b"4\r\nabcd\n0\r\n\r\n{inner}"),
    "a length after the chunks": (CHUNKED, b"4\r\nabcd\r\n0\r\nContent-Length: 500\r\n\r\n{inner}"),
    "a size that ends with LF": (CHUNKED, b"4\nabcd\r\n0\r\n\r\n{inner}"),
    "a size with LF in its extension": (CHUNKED, b"4;a\nb\r\nabcd\r\n0\r\n\r\n{inner}"),
}
TAKEN: dict[str, tuple[bytes, bytes]] = {
    "a length": (b"Content-Length: 4\r\n", BODY),
    "a length among white space": (b"Content-Length: \t 4 \t\r\n", BODY),
    "a length with zeros before it": (b"Content-Length: 0004\r\n", BODY),
    "a length that is nominated": (b"Content-Length: 4\r\nConnection: Content-Length, Host\r\n", BODY),
    "chunks": (CHUNKED, b"2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"),
    "chunks in capitals": (b"TRANSFER-ENCODING: CHUNKED\r\n", b"0004\r\nabcd\r\n0\r\n\r\n"),
    "chunks with an extension": (CHUNKED, b"4;a=b\r\nabcd\r\n0\r\n\r\n"),
    "chunks with trailers": (CHUNKED, b"4\r\nabcd\r\n0\r\nX-Mine: a\r\nX-File-ID: a\r\n\r\n"),
    "a wish to be asked": (b"Content-Length: 4\r\nExpect: 100-continue\r\n", BODY),
    "a wish that nobody knows": (b"Content-Length: 4\r\nExpect: the-unexpected\r\n", BODY),
    "a length and chunks of another name": (b"Content-Length: 4\r\nX-Transfer-Encoding: chunked\r\n", BODY),
}


@pytest.fixture(scope="module")
async def service(services: Services, redis_url: str) -> AsyncIterator[StubService]:
    async with run_stub_service() as service:
        yield service


@pytest.fixture(scope="module")
async def api(services: Services, redis_url: str, service: StubService) -> AsyncIterator[Api]:
    """A tenant at a gateway whose stub services only count requests."""
    known = await services.tenant()
    away = {f"{name}_service_url": service.address for name in ("catalog", "upload")}
    async with run_gateway(services, redis_url, **away) as address:
        yield Api(known.session, f"{address}/{known.tenant_id}", known.tenant_id, known.deployment, known.headers)


async def exchange(api: Api, sent: bytes) -> list[int]:
    """Send bytes at once, and read until the gateway closes the connection. Returns the final statuses."""
    url = urlsplit(api.base_url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        writer.write(sent)
        async with asyncio.timeout(TIMEOUT):
            received = await reader.read()
    finally:
        writer.close()
    # Invalid requests are answered in HTTP/1.0.
    statuses = [int(status) for status in re.findall(rb"HTTP/[0-9.]+ ([0-9]{3}) ", received)]
    return [status for status in statuses if status != 100]


def request(api: Api, line: str, lines: bytes = b"") -> bytes:
    method, _, path = line.partition(" ")
    token = f"Authorization: {api.headers['Authorization']}\r\n"
    return f"{method} /{api.tenant_id}/{path} HTTP/1.1\r\nHost: x\r\n{token}".encode() + lines + b"\r\n"


def last(api: Api) -> bytes:
    return request(api, "GET get_package_versions/Last", b"Connection: close\r\n")


def words(service: StubService) -> list[str]:
    return [received.path.split("/", 2)[2] for received in service.received]


@pytest.mark.parametrize("operation", OUTER)
async def test_an_ambiguous_request_ends_its_connection(operation: str, api: Api, service: StubService) -> None:
    inner = request(api, "GET get_package_versions/Smuggled")
    with every_cell() as cell:
        for case, (lines, body) in REFUSED.items():
            with cell(case):
                service.received.clear()
                outer = request(api, f"POST {operation}", lines) + body.replace(b"{inner}", inner)
                assert (await exchange(api, outer + last(api)), words(service)) == ([400], [])


@pytest.mark.parametrize("operation", OUTER)
async def test_an_unambiguous_request_reaches_the_service_once(operation: str, api: Api, service: StubService) -> None:
    with every_cell() as cell:
        for case, (lines, body) in TAKEN.items():
            with cell(case):
                service.received.clear()
                statuses = await exchange(api, request(api, f"POST {operation}", lines) + body + last(api))
                assert (statuses, words(service)) == ([200, 200], [operation, "get_package_versions/Last"])
                assert service.received[0].body == BODY


@pytest.mark.parametrize("operation", OUTER)
async def test_a_protocol_upgrade_closes_the_connection(operation: str, api: Api, service: StubService) -> None:
    with every_cell() as cell:
        for protocol in ("h2c", "websocket", "TLS/1.0"):
            with cell(protocol):
                service.received.clear()
                lines = f"Content-Length: 4\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n".encode()
                statuses = await exchange(api, request(api, f"POST {operation}", lines) + BODY + last(api))
                assert (statuses, words(service)) == ([200], [operation])


@pytest.mark.parametrize("operation", OUTER)
async def test_a_connect_request_closes_the_connection(operation: str, api: Api, service: StubService) -> None:
    service.received.clear()
    inner = request(api, "GET get_package_versions/Smuggled")
    length = f"Content-Length: {len(inner)}\r\n".encode()
    statuses = await exchange(api, request(api, f"CONNECT {operation}", length) + inner + last(api))
    assert (statuses, words(service)) == ([404], [])


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_an_unexpected_body_is_not_a_request(method: str, api: Api, service: StubService) -> None:
    service.received.clear()
    inner = request(api, "GET get_package_versions/Smuggled")
    outer = request(api, f"{method} get_package_versions/First", f"Content-Length: {len(inner)}\r\n".encode())
    statuses = await exchange(api, outer + inner + last(api))
    assert (statuses, words(service)) == ([200, 200], ["get_package_versions/First", "get_package_versions/Last"])


async def test_pipelined_requests_are_answered_in_order(api: Api, service: StubService) -> None:
    service.received.clear()
    row = [f"get_package_versions/{number}" for number in range(50)]
    statuses = await exchange(api, b"".join(request(api, f"GET {path}") for path in row) + last(api))
    assert (statuses, words(service)) == ([200] * 51, [*row, "get_package_versions/Last"])


NO_REQUESTS = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /x HTTP/1.1\r\n\r\n",  # no host
    b"GET /x\r\n\r\n",
    b"GET /x HTTP/1.1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET\t/x\tHTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /x HTTP/01.1\r\nHost: x\r\n\r\n",
    b"GET /x HTTP/2.0\r\nHost: x\r\n\r\n",
    b"\0GET /x HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /x HTTP/1.1\r\n Host: x\r\n\r\n",
    b"G@T /x HTTP/1.1\r\nHost: x\r\n\r\n",
)


async def test_nothing_is_read_after_an_invalid_request(api: Api, service: StubService) -> None:
    with every_cell() as cell:
        for start in NO_REQUESTS:
            with cell(start):
                service.received.clear()
                assert (await exchange(api, start + last(api)), words(service)) == ([400], [])


async def test_a_request_before_http_1_0_is_rejected(api: Api) -> None:
    # Nothing follows it, because that would be rejected too.
    assert await exchange(api, b"GET /livez\r\n\r\n") == [400]


async def test_headers_of_one_connection_do_not_reach_the_service(api: Api, service: StubService) -> None:
    service.received.clear()
    mine = {
        "Connection": "keep-alive, X-File-ID, X-Mine",
        "Keep-Alive": "timeout=9",
        "Proxy-Authorization": "Basic x",
        "Proxy-Connection": "keep-alive",
        "TE": "trailers",
        "Trailer": "X-Mine",
        "Upgrade": "mine",
        "X-Mine": "mine",
        "Via": "1.1 mine",
        "Cookie": "mine=1",
        "Expect": "mine",
    }
    answer = await api.call("POST", "add_package", data={"package_id": "a"}, headers=mine)
    assert answer.status == 200
    (received,) = service.received
    assert not {name for name in mine if received.headers.get(name) == mine[name]}
    assert "Authorization" not in received.headers
