"""Requests larger than the limits are rejected without being read to their end."""

import asyncio
import gzip
from io import BytesIO
from urllib.parse import urlsplit

import pytest

from common.auth.internal_tokens import Deployment
from common.http import connection_limits
from tests.support.api import Answer
from tests.support.system.raw_http import read_one_answer, read_raw, send_raw
from tests.support.system.services import Api, Services
from tests.support.tables import every_cell
from tests.support.wait import TIMEOUT

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
MULTIPART = {"Content-Type": "multipart/form-data; boundary=limit"}
UIDS = b"versions_uids=" + b",".join([b"3f2b8e5c-7a43-4d19-b7c8-2f4b9a1d6e70"] * 100_000)
FILE = b'--limit\r\nContent-Disposition: form-data; name="f"\r\n\r\n'
TOKEN = FILE.replace(b'"f"', b'"token"') + b"x\r\n"
HEAD = FILE.replace(b'"f"', b'"' + b"f" * (60 << 10) + b'"') + b"x\r\n"

Case = tuple[str, dict[str, str], bytes, int]  # operation, headers, body, expected status
BODIES: dict[str, Case] = {
    "a thousand fields": ("POST logout", FORM, b"token=x&" + b"&".join([b"f=x"] * 999), 200),
    "a thousand and one fields": ("POST logout", FORM, b"token=x&" + b"&".join([b"f=x"] * 1000), 400),
    "a thousand and one parts": ("POST logout", MULTIPART, TOKEN + (FILE + b"x\r\n") * 1000 + b"--limit--\r\n", 400),
    "a name of a mebibyte": ("POST logout", FORM, b"token=x&" + b"a" * (1 << 20) + b"=x", 413),
    "a name in a part's head": ("POST logout", MULTIPART, TOKEN + HEAD + b"--limit--\r\n", 400),
    "a password of ten mebibytes": ("POST login", FORM, b"username=admin&password=" + b"a" * (10 << 20), 413),
    "a password of seventy kibibytes": ("POST login", FORM, b"username=admin&password=" + b"a" * (70 << 10), 413),
    "a token of seventy kibibytes": ("POST logout", FORM, b"token=" + b"a" * (70 << 10), 413),
    "a sign-in of seventy kibibytes": ("POST sign_in", FORM, b"username=admin&password=" + b"a" * (70 << 10), 413),
    "a password of sixty kibibytes": ("POST login", FORM, b"username=nobody&password=" + b"a" * (60 << 10), 400),
    "a hundred thousand uids": ("DELETE delete_package_version/a", FORM, UIDS, 413),
    "a thousand and one uids": ("DELETE delete_package_version/a", FORM, UIDS[: 14 + 37 * 1001 - 1], 400),
    "a client's form": ("POST get_packages", FORM, b"auth_token=" + b"a" * (64 << 10), 413),
    "a search": ("POST winget/manifestSearch", {"Content-Type": "application/json"}, b" " * (64 << 10) + b"{}", 413),
    "a description": ("POST add_package", FORM, b"package_id=a&package_description=" + b"a" * (512 << 10), 400),
    "a logo": ("POST add_package", MULTIPART, FILE + b"a" * (6 << 20), 413),
    "a bomb": ("POST login", {**FORM, "Content-Encoding": "gzip"}, gzip.compress(bytes(20 << 20), 1), 400),
}
HEADS = {
    "128 headers": ("/test", {f"X-{number}": "a" for number in range(125)}, 200),
    "129 headers": ("/test", {f"X-{number}": "a" for number in range(126)}, 400),
    "a thousand headers": ("/test", {f"X-{number}": "a" for number in range(1000)}, 400),
    "a header of eight kibibytes": ("/test", {"X-A": "a" * 8000}, 200),
    "a header of nine kibibytes": ("/test", {"X-A": "a" * (9 << 10)}, 400),
    "a header's name of nine kibibytes": ("/test", {"a" * (9 << 10): "a"}, 400),
    "sixty kibibytes of headers": ("/test", {f"X-{number}": "a" * 500 for number in range(120)}, 200),
    "seventy kibibytes of headers": ("/test", {f"X-{number}": "a" * 600 for number in range(120)}, 400),
    "an address of twenty kibibytes": ("/" + "a" * (20 << 10), {}, 400),
    "a query of twenty kibibytes": ("/test?" + "a" * (20 << 10), {}, 400),
    "a token of five kibibytes": ("/test", {"Authorization": "Bearer " + "a" * (5 << 10)}, 401),
}


TOO_LARGE = {name: case for name, case in BODIES.items() if case[-1] == 413}


@pytest.fixture(scope="module", params=[Deployment.MULTI, pytest.param(Deployment.SINGLE, marks=pytest.mark.full)])
async def api(services: Services, request: pytest.FixtureRequest) -> Api:
    """An administrator of each deployment, without the alias: its pages redirect and read no body."""
    return await services.tenant(request.param)


async def send(api: Api, operation: str, headers: dict[str, str], body: bytes = b"") -> Answer:
    """Send a request on a connection that stays open. Returns the answer."""
    url, (method, _, target) = urlsplit(api.base_url), operation.partition(" ")
    address, headers = f"{url.scheme}://{url.netloc}", {**api.headers, **headers}
    async with asyncio.timeout(TIMEOUT):
        return await send_raw(address, method, f"{url.path}/{target}", headers, body, until_closed=False)


async def test_a_body_larger_than_its_limit_is_rejected(api: Api) -> None:
    with every_cell() as cell:
        for case, (operation, headers, body, status) in BODIES.items():
            method, _, path = operation.partition(" ")
            with cell(case):
                async with asyncio.timeout(TIMEOUT):
                    answer = await api.call(method, *path.split("/"), headers=headers, data=BytesIO(body))
                assert answer.status == status, answer.body


async def test_a_body_with_a_too_large_length_is_not_read(api: Api) -> None:
    with every_cell() as cell:
        for case, (operation, headers, body, _) in TOO_LARGE.items():
            with cell(case):
                # Only the length is sent, without a body.
                answer = await send(api, operation, {**headers, "Content-Length": str(len(body))})
                assert answer.status == 413


async def test_a_body_of_unknown_length_is_read_up_to_its_limit(api: Api) -> None:
    with every_cell() as cell:
        for case, (operation, headers, body, _) in TOO_LARGE.items():
            with cell(case):
                chunked = {**headers, "Transfer-Encoding": "chunked"}
                # The chunk never ends.
                answer = await send(api, operation, chunked, b"ffffffff\r\n" + body)
                assert answer.status == 413


async def test_headers_larger_than_the_limit_are_rejected(api: Api) -> None:
    with every_cell() as cell:
        for case, (target, headers, status) in HEADS.items():
            with cell(case):
                answer = await api.call_raw("GET", f"{api.path}{target}", headers)
                assert answer.status == status


async def test_endless_headers_are_rejected(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEAD_LIMIT", 500)
    monkeypatch.setattr(connection_limits, "HEAD_TIMEOUT", 600)
    url = urlsplit(api.base_url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        # Each header is short, and there are few; but the last one never arrives.
        writer.write(f"GET {url.path}/test HTTP/1.1\r\nHost: x\r\n".encode() + b"X-A: aaaa\r\n" * 60)
        async with asyncio.timeout(TIMEOUT):
            answered = await _read(reader)
    finally:
        writer.close()
    assert answered == b""


async def test_the_header_limit_applies_to_each_request(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEAD_LIMIT", 1 << 10)
    taken, take = asyncio.Event(), connection_limits.LimitedConnection.data_received

    def taking(connection: connection_limits.LimitedConnection, data: bytes) -> None:
        take(connection, data)
        taken.set()

    monkeypatch.setattr(connection_limits.LimitedConnection, "data_received", taking)
    url = urlsplit(api.base_url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    answers: list[Answer] = []
    try:
        for end in [b""] * 9 + [b"Connection: close\r\n"]:
            head = f"GET {url.path}/nothing HTTP/1.1\r\nHost: x\r\nX-A: {'a' * 500}\r\n".encode() + end
            # In two parts, so each request has incomplete headers for a while.
            taken.clear()
            writer.write(head)
            await taken.wait()
            writer.write(b"\r\n")
            answers.append(read_raw(await read_one_answer(reader), "GET"))
    finally:
        writer.close()
    assert [answer.status for answer in answers] == [404] * 10


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""
