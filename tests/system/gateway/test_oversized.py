"""What is larger than it may be is refused, and not read to its end."""

import asyncio
import gzip
from io import BytesIO
from urllib.parse import urlsplit

import pytest

from common import protocol
from common.caller import Deployment
from tests.support.api import Answer
from tests.support.whole.raw import read_one, read_raw, send_raw
from tests.support.whole.services import Api, Services

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
MULTIPART = {"Content-Type": "multipart/form-data; boundary=limit"}
UIDS = b"versions_uids=" + b",".join([b"3f2b8e5c-7a43-4d19-b7c8-2f4b9a1d6e70"] * 100_000)
FILE = b'--limit\r\nContent-Disposition: form-data; name="f"\r\n\r\n'
TOKEN = FILE.replace(b'"f"', b'"token"') + b"x\r\n"
HEAD = FILE.replace(b'"f"', b'"' + b"f" * (60 << 10) + b'"') + b"x\r\n"

# operation, headers, body, what it is answered with
BODIES = {
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
    "a bomb": ("POST login", {**FORM, "Content-Encoding": "gzip"}, gzip.compress(b"a=" + b"0" * (20 << 20)), 400),
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


@pytest.fixture(scope="session", params=list(Deployment))
async def each(services: Services, request: pytest.FixtureRequest) -> Api:
    """An administrator of each deployment. The alias is left out: its pages redirect and read no body."""
    return await services.tenant(request.param)


def way(api: Api) -> tuple[str, str]:
    url = urlsplit(api.base_url)
    return f"{url.scheme}://{url.netloc}", url.path


@pytest.mark.parametrize("case", BODIES)
async def test_a_body_larger_than_it_may_be_is_refused(case: str, each: Api) -> None:
    operation, headers, body, status = BODIES[case]
    method, _, path = operation.partition(" ")
    async with asyncio.timeout(20):
        answer = await each.call(method, *path.split("/"), headers=headers, data=BytesIO(body))
    assert answer.status == status, answer.body


@pytest.mark.parametrize("case", [case for case, (*_, status) in BODIES.items() if status == 413])
async def test_a_body_that_says_it_is_too_large_is_not_read(case: str, each: Api) -> None:
    operation, headers, body, _ = BODIES[case]
    method, _, path = operation.partition(" ")
    address, prefix = way(each)
    told = {**each.headers, **headers, "Content-Length": str(len(body))}
    async with asyncio.timeout(20):
        # And nothing of it comes.
        answer = await send_raw(address, method, f"{prefix}/{path}", told, to_the_end=False)
    assert answer.status == 413


@pytest.mark.parametrize("case", [case for case, (*_, status) in BODIES.items() if status == 413])
async def test_a_body_that_does_not_say_so_is_read_as_far_as_it_may_go(case: str, each: Api) -> None:
    operation, headers, body, _ = BODIES[case]
    method, _, path = operation.partition(" ")
    address, prefix = way(each)
    told = {**each.headers, **headers, "Transfer-Encoding": "chunked"}
    async with asyncio.timeout(20):
        # The chunk never ends.
        answer = await send_raw(address, method, f"{prefix}/{path}", told, b"ffffffff\r\n" + body, to_the_end=False)
    assert answer.status == 413


@pytest.mark.parametrize("case", HEADS)
async def test_a_head_has_an_end(case: str, each: Api) -> None:
    address, prefix = way(each)
    target, headers, status = HEADS[case]
    answer = await send_raw(address, "GET", f"{prefix}{target}", {**each.headers, **headers})
    assert answer.status == status


async def test_a_head_without_an_end_is_not_kept(each: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_LIMIT", 500)
    address, prefix = way(each)
    url = urlsplit(address)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        # Each header is as short as may be, and there are few; but the last one never comes.
        writer.write(f"GET {prefix}/test HTTP/1.1\r\nHost: x\r\n".encode() + b"X-A: aaaa\r\n" * 60)
        async with asyncio.timeout(10):  # sooner than a head that is slow is given up
            answered = await _read(reader)
    finally:
        writer.close()
    assert answered == b""


async def test_the_heads_of_a_connection_are_counted_one_by_one(each: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_LIMIT", 1 << 10)
    taken, take = asyncio.Event(), protocol._Connection.data_received

    def taking(connection: protocol._Connection, data: bytes) -> None:
        take(connection, data)
        taken.set()

    monkeypatch.setattr(protocol._Connection, "data_received", taking)
    address, prefix = way(each)
    url = urlsplit(address)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    answers: list[Answer] = []
    try:
        for end in [b""] * 9 + [b"Connection: close\r\n"]:
            head = f"GET {prefix}/nothing HTTP/1.1\r\nHost: x\r\nX-A: {'a' * 500}\r\n".encode() + end
            # In two pieces, so that there is a head without an end each time.
            taken.clear()
            writer.write(head)
            await taken.wait()
            writer.write(b"\r\n")
            answers.append(read_raw(await read_one(reader), "GET"))
    finally:
        writer.close()
    assert [answer.status for answer in answers] == [404] * 10


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""
