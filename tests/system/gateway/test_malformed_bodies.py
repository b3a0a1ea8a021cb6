"""Malformed bodies: every operation with a body answers 400 and writes nothing."""

import gzip
import json
import zlib
from collections.abc import AsyncIterator, Mapping
from itertools import product
from urllib.parse import urlencode

import pytest

from common.auth.internal_tokens import Deployment
from gateway.operations import OPERATIONS, Operation
from tests.support.api import Answer
from tests.support.samples.openapi import DOCUMENT
from tests.support.system.forms import (
    CHUNK,
    FORM,
    MULTIPART,
    TRANSFER,
    UPLOADS,
    Body,
    encoded,
    multipart,
    own_form,
    part,
)
from tests.support.system.raw_http import send_raw
from tests.support.system.seed import UNKNOWN, SeedData, seed_tenant, segments, title
from tests.support.system.services import Services, single_gateway
from tests.support.tables import every_cell


def packed(body: Body, coding: str, content: bytes | None = None) -> Body:
    return {**body[0], "Content-Encoding": coding}, body[1] if content is None else content


def malformed(form: Mapping[str, str]) -> dict[str, Body]:
    """Valid bodies with one error each."""
    known = next(iter(form), "more")
    return {
        "unknown charset": encoded(form, f"{FORM}; charset=klingon"),
        "utf-7": encoded(form, f"{FORM}; charset=utf-7"),
        "utf-16": ({"Content-Type": f"{FORM}; charset=utf-16"}, urlencode(form).encode("utf-16")),
        "raw bytes that are not UTF-8": encoded(form, more=b"&more=\xff\xfe"),
        "escapes that are not UTF-8": encoded(form, more=b"&more=%ff%fe"),
        "escaped surrogates": encoded(form, more=b"&more=%ed%a0%80"),
        "too many fields": encoded(form, more=b"&more=x" * 1001),
        "multipart without a boundary": multipart(form, "multipart/form-data", CHUNK),
        "multipart with another boundary": multipart(form, "multipart/form-data; boundary=other", CHUNK),
        "multipart without an end": multipart(form, more=CHUNK, end=b""),
        "multipart cut in a head": multipart(form, more=CHUNK, end=b"--limit\r\nContent-Disposition: form"),
        "multipart with a broken head": multipart(form, more=CHUNK + b"--limit\r\nno colon\r\n\r\nx\r\n"),
        "multipart without a disposition": multipart(
            form, more=CHUNK + b"--limit\r\nContent-Type: text/plain\r\n\r\nx\r\n"
        ),
        # Without the chunk, because parts besides a chunk are skipped.
        "multipart text that is not UTF-8": multipart(form, more=part(known, b"\xff\xfe")),
        "multipart text in utf-7": multipart(
            form, more=part(known, b"+AHg-", "\r\nContent-Type: text/plain; charset=utf-7")
        ),
        "JSON": ({"Content-Type": "application/json"}, json.dumps(form).encode()),
        "text": encoded(form, "text/plain"),
        "no type": encoded(form, ""),
        "a type that is none": encoded(form, "form; charset="),
    }


def compressed(form: Mapping[str, str]) -> dict[str, Body]:
    """Valid bodies with a wrong content coding."""
    whole = multipart(form, more=CHUNK)
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


def contents_of(row: Operation) -> dict[str, dict[str, dict[str, object]]]:
    """The content types of an operation's body, with their schemas."""
    operation = DOCUMENT["paths"].get(f"/{row.path}", {}).get(row.method.lower(), {})
    contents: dict[str, dict[str, dict[str, object]]] = operation.get("requestBody", {"content": {}})["content"]
    return contents


def has_required_fields(row: Operation) -> bool:
    return any(content["schema"].get("required") for content in contents_of(row).values())


# The document does not describe the sign-in form of browsers.
WITH_BODY = [row for row in OPERATIONS if "multipart/form-data" in contents_of(row) or title(row) == "POST-sign_in"]
WITHOUT_BODY = [row for row in OPERATIONS if row not in WITH_BODY]


deployments = pytest.mark.parametrize(
    ("seed_data", "every"),
    [
        pytest.param(Deployment.MULTI, 8, id="sample"),
        pytest.param(Deployment.MULTI, 1, id="multi", marks=pytest.mark.full),
        pytest.param(Deployment.SINGLE, 1, id="single", marks=pytest.mark.full),
    ],
    indirect=["seed_data"],
)


@pytest.fixture(scope="module")
async def seed_data(services: Services, redis_url: str, request: pytest.FixtureRequest) -> AsyncIterator[SeedData]:
    """A tenant with the objects that operations need, so only the body is wrong."""
    if request.param is Deployment.MULTI:
        yield await seed_tenant(await services.tenant())
        return
    tenant = await services.tenant(client_authentication=True)
    async with single_gateway(services, redis_url, tenant) as single:
        yield (await seed_tenant(tenant)).via(single)


@deployments
async def test_a_malformed_body_is_rejected_and_writes_nothing(seed_data: SeedData, every: int) -> None:
    forms = {row: own_form(row, seed_data) for row in WITH_BODY}
    cells = [(row, *body) for row in WITH_BODY for body in {**malformed(forms[row]), **compressed(forms[row])}.items()]
    async with seed_data.assert_unchanged(log=False):
        with every_cell() as cell:
            for row, kind, (headers, body) in cells[::every]:
                with cell(title(row), kind):
                    answer = await seed_data.send(row, headers={**TRANSFER, **headers}, data=body)
                    assert answer.status == 400


async def test_the_well_formed_body_is_accepted(services: Services) -> None:
    whole = await seed_tenant(await services.tenant())
    with every_cell() as cell:
        # Deletions come last.
        for row in sorted(WITH_BODY, key=lambda row: (row.method == "DELETE", row.name == "logout")):
            if row.name == "sign_in/oidc/backchannel_logout":
                continue  # It needs a token of an identity provider: see `test_company_login`.
            with cell(title(row)):
                answer = await send_well_formed(row, whole)
                if answer.status >= 400:  # An earlier operation deleted or used a required object.
                    whole = await seed_tenant(await services.tenant())
                    answer = await send_well_formed(row, whole)
                assert answer.status in {200, 201, 303}, answer.body


async def send_well_formed(row: Operation, seed_data: SeedData) -> Answer:
    headers, body = multipart(own_form(row, seed_data), more=CHUNK if row in UPLOADS else b"")
    return await seed_data.send(row, headers={**headers, **TRANSFER}, data=body)


@deployments
async def test_a_broken_transfer_is_rejected_and_writes_nothing(seed_data: SeedData, every: int) -> None:
    gateway, _, prefix = seed_data.api.base_url.removeprefix("http://").partition("/")
    headers = {**seed_data.api.headers, **TRANSFER, **CHUNKED}
    cells = [*product(WITH_BODY, BROKEN_TRANSFERS.items())]
    async with seed_data.assert_unchanged(log=False):
        with every_cell() as cell:
            for row, (kind, end) in cells[:: min(every, 3)]:  # so the sample has both kinds
                with cell(title(row), kind):
                    path = "/".join(["", prefix, *segments(row, seed_data.parts)])
                    form = urlencode(own_form(row, seed_data)).encode()
                    body = f"{len(form):x}\r\n".encode() + form + b"\r\n" + end
                    answer = await send_raw(f"http://{gateway}", row.method, path, headers, body)
                    assert answer.status == 400


@deployments
async def test_an_empty_body_is_rejected_if_a_field_is_required(seed_data: SeedData, every: int) -> None:
    kinds = (FORM, MULTIPART, "application/json", "nonsense")[::every]
    with every_cell() as cell:
        for row, kind in product(WITH_BODY, kinds):
            with cell(title(row), kind):
                answer = await seed_data.send(row, headers={**TRANSFER, "Content-Type": kind})
                assert answer.status == 400 or (answer.status == 200 and not has_required_fields(row))


@deployments
async def test_an_unexpected_body_is_harmless(seed_data: SeedData, every: int) -> None:
    cells = [*product(WITHOUT_BODY, malformed(seed_data.form).items())]
    async with seed_data.assert_unchanged(log=False):
        with every_cell() as cell:
            for row, (kind, (headers, body)) in cells[::every]:
                with cell(title(row), kind):
                    path = segments(row, UNKNOWN)
                    answer = await seed_data.api.call(row.method, *path, headers=headers, data=body)
                    assert answer.status < 500
