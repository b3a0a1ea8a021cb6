"""Bodies that cannot be understood: answered 400 by every operation that takes a body, and nothing is written."""

import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from common.caller import Deployment
from gateway.operations import OPERATIONS, Operation
from tests.support.whole.estate import UNKNOWN, Estate, furnish, segments, title
from tests.support.whole.raw import send_raw
from tests.support.whole.services import Services, single_gateway

PATHS: dict[str, Any] = yaml.safe_load((files("gateway") / "openapi.yaml").read_text(encoding="utf-8"))["paths"]
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=limit"
END = b"--limit--\r\n"
Body = tuple[dict[str, str], bytes]


def part(name: str, value: bytes, more: str = "") -> bytes:
    return f'--limit\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


def encoded(form: Mapping[str, str], kind: str = FORM, more: bytes = b"") -> Body:
    return {"Content-Type": kind}, urlencode(form).encode() + more


def multipart(form: Mapping[str, str], kind: str = MULTIPART, more: bytes = b"", end: bytes = END) -> Body:
    return {"Content-Type": kind}, b"".join(part(name, value.encode()) for name, value in form.items()) + more + end


def packed(body: Body, coding: str, content: bytes | None = None) -> Body:
    return {**body[0], "Content-Encoding": coding}, body[1] if content is None else content


def malformed(form: Mapping[str, str]) -> dict[str, Body]:
    """Bodies that would do what they say, were it not for one thing each."""
    chunk = part("chunk", b"abcd", '; filename="blob"')
    return {
        "unknown charset": encoded(form, f"{FORM}; charset=klingon"),
        "utf-7": encoded(form, f"{FORM}; charset=utf-7"),
        "utf-16": ({"Content-Type": f"{FORM}; charset=utf-16"}, urlencode(form).encode("utf-16")),
        "raw bytes that are not UTF-8": encoded(form, more=b"&more=\xff\xfe"),
        "escapes that are not UTF-8": encoded(form, more=b"&more=%ff%fe"),
        "escaped surrogates": encoded(form, more=b"&more=%ed%a0%80"),
        "too many fields": encoded(form, more=b"&more=x" * 1001),
        "multipart without a boundary": multipart(form, "multipart/form-data", chunk),
        "multipart with another boundary": multipart(form, "multipart/form-data; boundary=other", chunk),
        "multipart without an end": multipart(form, more=chunk, end=b""),
        "multipart cut in a head": multipart(form, more=chunk, end=b"--limit\r\nContent-Disposition: form"),
        "multipart with a broken head": multipart(form, more=chunk + b"--limit\r\nno colon\r\n\r\nx\r\n"),
        "multipart without a disposition": multipart(
            form, more=chunk + b"--limit\r\nContent-Type: text/plain\r\n\r\nx\r\n"
        ),
        # Without the chunk: parts beside one are passed over unread.
        "multipart text that is not UTF-8": multipart(form, more=part("more", b"\xff\xfe")),
        "multipart text in utf-7": multipart(
            form, more=part("more", b"+AHg-", "\r\nContent-Type: text/plain; charset=utf-7")
        ),
        "JSON": ({"Content-Type": "application/json"}, json.dumps(form).encode()),
        "text": encoded(form, "text/plain"),
        "no type": encoded(form, ""),
        "a type that is none": encoded(form, "form; charset="),
    }


def compressed(form: Mapping[str, str]) -> dict[str, Body]:
    """Bodies that would do what they say, were it not for their coding, or for saying that they have one."""
    whole = multipart(form, more=part("chunk", b"abcd", '; filename="blob"'))
    return {
        "gzip that is none": packed(encoded(form), "gzip"),
        "gzip": packed(encoded(form), "gzip", gzip.compress(encoded(form)[1])),
        "gzip multipart": packed(whole, "GZIP", gzip.compress(whole[1])),
        "gzip multipart that is none": packed(whole, "gzip"),
        "deflate": packed(encoded(form), "deflate", zlib.compress(encoded(form)[1])),
        "two codings": packed(whole, "identity, br"),
    }


CHUNKED = {"Transfer-Encoding": "chunked", "Content-Type": FORM}
BROKEN_TRANSFERS = {"a size that is none": b"zz\r\n\r\n", "a block longer than its size": b"1\r\nxxxx\r\n0\r\n\r\n"}
TRANSFER = {"X-File-ID": "malformed", "Content-Range": "bytes 0-3/4"}


def described_body(row: Operation) -> dict[str, Any] | None:
    body: dict[str, Any] | None = PATHS.get(f"/{row.path}", {}).get(row.method.lower(), {}).get("requestBody")
    return body


def kinds_of(row: Operation) -> set[str]:
    """The content types of the bodies that an operation takes."""
    return set((described_body(row) or {"content": {}})["content"])


def good_form(row: Operation, estate: Estate) -> dict[str, str]:
    # A user who is there may sign in; another one may be added.
    return {**estate.form, **({"username": "newcomer"} if row.word == "add_user" else {})}


def wants_fields(row: Operation) -> bool:
    body = described_body(row) or {"content": {}}
    return any(content["schema"].get("required") for content in body["content"].values())


# The sign-in form is a browser's, so the document does not tell of it.
WITH_BODY = [row for row in OPERATIONS if "multipart/form-data" in kinds_of(row) or title(row) == "POST-sign_in"]
WITHOUT_BODY = [row for row in OPERATIONS if row not in WITH_BODY]


@pytest.fixture(scope="session")
async def estates(services: Services, redis_url: str) -> AsyncIterator[dict[Deployment, Estate]]:
    """A tenant of each deployment that has what the operations need, so that nothing but the body can be wrong."""
    tenant = await services.tenant(client_authentication=True)
    async with single_gateway(services, redis_url, tenant) as single:
        yield {
            Deployment.MULTI: await furnish(await services.tenant()),
            Deployment.SINGLE: (await furnish(tenant)).through(single),
        }


@pytest.fixture(params=list(Deployment))
def estate(request: pytest.FixtureRequest, estates: dict[Deployment, Estate]) -> Estate:
    return estates[request.param]


@pytest.mark.parametrize("row", WITH_BODY, ids=title)
@pytest.mark.parametrize("kinds", [malformed, compressed])
async def test_a_body_that_cannot_be_understood_is_refused_and_nothing_is_written(
    row: Operation, kinds: Callable[[Mapping[str, str]], dict[str, Body]], estate: Estate
) -> None:
    bodies = kinds(good_form(row, estate))
    async with estate.unharmed(log=False):
        answers = {
            kind: (await estate.send(row, headers={**TRANSFER, **headers}, data=body)).status
            for kind, (headers, body) in bodies.items()
        }
    assert answers == dict.fromkeys(bodies, 400)


@pytest.mark.parametrize("row", WITH_BODY, ids=title)
async def test_the_same_body_well_formed_is_accepted(row: Operation, services: Services) -> None:
    whole = await furnish(await services.tenant())
    headers, body = multipart(good_form(row, whole), more=part("chunk", b"abcd", '; filename="blob"'))
    answer = await whole.send(row, headers={**headers, **TRANSFER}, data=body)
    assert answer.status in {200, 201, 303}, answer.body


@pytest.mark.parametrize("row", WITH_BODY, ids=title)
@pytest.mark.parametrize("kind", BROKEN_TRANSFERS)
async def test_a_broken_transfer_is_refused_and_nothing_is_written(row: Operation, kind: str, estate: Estate) -> None:
    gateway, _, prefix = estate.api.base_url.removeprefix("http://").partition("/")
    path = "/".join(["", prefix, *segments(row, estate.parts)])
    headers = {**estate.api.headers, **TRANSFER, **CHUNKED}
    form = urlencode(good_form(row, estate)).encode()
    body = f"{len(form):x}\r\n".encode() + form + b"\r\n" + BROKEN_TRANSFERS[kind]
    async with estate.unharmed(log=False):
        answer = await send_raw(f"http://{gateway}", row.method, path, headers, body)
    assert answer.status == 400


@pytest.mark.parametrize("row", WITH_BODY, ids=title)
async def test_an_empty_body_is_refused_where_a_field_is_required(row: Operation, estate: Estate) -> None:
    for kind in (FORM, MULTIPART, "application/json", "nonsense"):
        answer = await estate.send(row, headers={**TRANSFER, "Content-Type": kind})
        assert answer.status == 400 or (answer.status == 200 and not wants_fields(row)), (kind, answer.body)


@pytest.mark.parametrize("row", WITHOUT_BODY, ids=title)
async def test_a_body_that_nobody_asked_for_does_no_harm(row: Operation, estate: Estate) -> None:
    async with estate.unharmed(log=False):
        for kind, (headers, body) in malformed(estate.form).items():
            answer = await estate.api.call(row.method, *segments(row, UNKNOWN), headers=headers, data=body)
            assert answer.status < 500, (kind, answer.body)
