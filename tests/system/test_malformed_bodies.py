"""Bodies that cannot be understood: answered 400 by every operation that takes a body, and nothing is written."""

import gzip
import json
from importlib.resources import files
from typing import Any

import pytest
import yaml

from common.caller import Deployment
from gateway.operations import OPERATIONS, Operation
from tests.system.estate import UNKNOWN, Estate, furnish, segments, title
from tests.system.raw import send_raw
from tests.system.services import Api, Services

PATHS: dict[str, Any] = yaml.safe_load((files("gateway") / "openapi.yaml").read_text(encoding="utf-8"))["paths"]
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=limit"


def part(head: str, value: bytes) -> bytes:
    return b"--limit\r\n" + head.encode() + b"\r\n\r\n" + value + b"\r\n"


FIELD = part('Content-Disposition: form-data; name="package_name"', b"x")
END = b"--limit--\r\n"
MALFORMED: dict[str, tuple[dict[str, str], bytes]] = {
    "unknown charset": ({"Content-Type": f"{FORM}; charset=klingon"}, b"package_name=x"),
    "utf-7": ({"Content-Type": f"{FORM}; charset=utf-7"}, b"package_name=+AHg-"),
    "utf-16": ({"Content-Type": f"{FORM}; charset=utf-16"}, "package_name=x".encode("utf-16")),
    "raw bytes that are not UTF-8": ({"Content-Type": FORM}, b"package_name=\xff\xfe"),
    "escapes that are not UTF-8": ({"Content-Type": FORM}, b"package_name=%ff%fe"),
    "escaped surrogates": ({"Content-Type": FORM}, b"package_name=%ed%a0%80"),
    "too many fields": ({"Content-Type": FORM}, b"&".join(b"f%d=x" % number for number in range(1001))),
    "multipart without a boundary": ({"Content-Type": "multipart/form-data"}, FIELD + END),
    "multipart with another boundary": ({"Content-Type": "multipart/form-data; boundary=other"}, FIELD + END),
    "multipart without an end": ({"Content-Type": MULTIPART}, FIELD),
    "multipart cut in a head": ({"Content-Type": MULTIPART}, FIELD + b"--limit\r\nContent-Disposition: form"),
    "multipart with a broken head": ({"Content-Type": MULTIPART}, part("no colon", b"x") + END),
    "multipart without a disposition": ({"Content-Type": MULTIPART}, part("Content-Type: text/plain", b"x") + END),
    "multipart text that is not UTF-8": (
        {"Content-Type": MULTIPART},
        part('Content-Disposition: form-data; name="package_name"', b"\xff\xfe") + END,
    ),
    "multipart text in utf-7": (
        {"Content-Type": MULTIPART},
        part('Content-Disposition: form-data; name="package_name"\r\nContent-Type: text/plain; charset=utf-7', b"+AHg-")
        + END,
    ),
    "gzip that is none": ({"Content-Type": FORM, "Content-Encoding": "gzip"}, b"package_name=x"),
    "gzip": ({"Content-Type": FORM, "Content-Encoding": "gzip"}, gzip.compress(b"package_name=x")),
    "gzip multipart": ({"Content-Type": MULTIPART, "Content-Encoding": "GZIP"}, gzip.compress(FIELD + END)),
    "deflate": ({"Content-Type": FORM, "Content-Encoding": "deflate"}, b"package_name=x"),
    "unknown coding": ({"Content-Type": FORM, "Content-Encoding": "identity, br"}, b"package_name=x"),
    "JSON": ({"Content-Type": "application/json"}, json.dumps({"package_name": "x"}).encode()),
    "text": ({"Content-Type": "text/plain"}, b"package_name=x"),
    "no type": ({"Content-Type": ""}, b"package_name=x"),
    "a type that is none": ({"Content-Type": "form; charset="}, b"package_name=x"),
}
CHUNKED = {"Transfer-Encoding": "chunked", "Content-Type": FORM}
BROKEN_TRANSFERS = {"a size that is none": b"zz\r\nx\r\n0\r\n\r\n", "a chunk too long": b"1\r\nxxxx\r\n0\r\n\r\n"}
TRANSFER = {"X-File-ID": "malformed", "Content-Range": "bytes 0-3/4"}


def described_body(row: Operation) -> dict[str, Any] | None:
    body: dict[str, Any] | None = PATHS.get(f"/{row.path}", {}).get(row.method.lower(), {}).get("requestBody")
    return body


def wants_fields(row: Operation) -> bool:
    body = described_body(row) or {"content": {}}
    return any(content["schema"].get("required") for content in body["content"].values())


# The sign-in form is a browser's, so the document does not tell of it.
WITH_BODY = [row for row in OPERATIONS if described_body(row) or title(row) == "POST-sign_in"]
WITHOUT_BODY = [row for row in OPERATIONS if row not in WITH_BODY]


@pytest.fixture(scope="module", params=list(Deployment))
async def estate(request: pytest.FixtureRequest, services: Services, enforcing: Api, enforcing_single: Api) -> Estate:
    """A tenant that has what the operations need, so that nothing but the body can be wrong."""
    if request.param is Deployment.MULTI:
        return await furnish(await services.tenant())
    return (await furnish(enforcing)).through(enforcing_single)


@pytest.mark.parametrize("row", WITH_BODY, ids=title)
async def test_a_body_that_cannot_be_understood_is_refused_and_nothing_is_written(
    row: Operation, estate: Estate
) -> None:
    before = await estate.view()
    answers = {
        kind: (await estate.send(row, headers={**TRANSFER, **headers}, data=body)).status
        for kind, (headers, body) in MALFORMED.items()
    }
    assert answers == dict.fromkeys(MALFORMED, 400)
    assert await estate.view() == before


@pytest.mark.parametrize("row", WITH_BODY, ids=title)
@pytest.mark.parametrize("kind", BROKEN_TRANSFERS)
async def test_a_broken_transfer_is_refused_and_nothing_is_written(row: Operation, kind: str, estate: Estate) -> None:
    before = await estate.view()
    gateway, _, prefix = estate.api.base_url.removeprefix("http://").partition("/")
    path = "/".join(["", prefix, *segments(row, estate.parts)])
    headers = {**estate.api.headers, **TRANSFER, **CHUNKED}
    answer = await send_raw(f"http://{gateway}", row.method, path, headers, BROKEN_TRANSFERS[kind])
    assert answer.status == 400
    assert await estate.view() == before


@pytest.mark.parametrize("row", WITH_BODY, ids=title)
async def test_an_empty_body_is_refused_where_a_field_is_required(row: Operation, estate: Estate) -> None:
    for kind in (FORM, MULTIPART, "application/json", "nonsense"):
        answer = await estate.send(row, headers={**TRANSFER, "Content-Type": kind})
        assert answer.status == 400 or (answer.status == 200 and not wants_fields(row)), (kind, answer.body)


@pytest.mark.parametrize("row", WITHOUT_BODY, ids=title)
async def test_a_body_that_nobody_asked_for_does_no_harm(row: Operation, estate: Estate) -> None:
    before = await estate.view()
    for kind, (headers, body) in MALFORMED.items():
        answer = await estate.api.call(row.method, *segments(row, UNKNOWN), headers=headers, data=body)
        assert answer.status < 500, (kind, answer.body)
    assert await estate.view() == before
