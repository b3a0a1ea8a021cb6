"""Bodies: malformed ones and unknown fields are refused and write nothing, and long forms come one at a time."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Mapping
from itertools import product
from urllib.parse import urlencode, urlsplit

import pytest
from aiohttp import FormData

from common.auth.internal_tokens import Deployment
from common.http.bodies import FORM_LIMIT
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
from tests.support.system.publishing import INSTALLER, add_package, package_id
from tests.support.system.raw_http import send_raw
from tests.support.system.seed import UNKNOWN, SeedData, seed_tenant, segments, title
from tests.support.system.services import Api, Services, single_gateway
from tests.support.tables import each, every_cell
from tests.support.wait import until


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


@each("is_file", [False, True])
async def test_an_unknown_field_beside_an_installer_leaves_no_file(tenant: Api, is_file: bool) -> None:
    name, form = package_id(), FormData({**INSTALLER, "package_version": "1.0"})
    await add_package(tenant, name)
    form.add_field("file", b"an installer", filename="setup.exe")
    form.add_field("package_dependencies", "Acme.Runtime", filename="a" if is_file else None)

    answer = await tenant.call("POST", "add_package_version", name, data=form)

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
    assert answer.body["detail"].startswith("package_dependencies: ")
    assert "did you mean dep_pkg_identifier?" in answer.body["detail"]
    assert (await tenant.call("GET", "get_package_versions", name)).body == []
    assert (await tenant.call("GET", "server_information")).body["storage_used"] == 0


async def test_an_unknown_field_changes_nothing(tenant: Api) -> None:
    form = {"version_key": "installer", "client_auth": "true"}
    answer = await tenant.call("PATCH", "edit_settings", data=form)
    detail = "client_auth: is no field of this operation; did you mean client_authentication?"
    assert (answer.status, answer.body["detail"]) == (400, detail)
    settings = (await tenant.call("GET", "server_information")).body["settings"]
    assert (settings["version_key"], settings["client_authentication"]) == ("version", False)


@pytest.mark.parametrize("name", ["Logo", "logo"])
async def test_both_spellings_of_the_logo_are_fields(tenant: Api, name: str) -> None:
    package, form = package_id(), FormData()
    await add_package(tenant, package)
    form.add_field(name, b"no picture", filename="logo.png")
    answer = await tenant.call("PATCH", "edit_package", package, data=form)
    assert answer.body["detail"].startswith("Logo: is not a PNG or JPEG image")


async def test_programs_of_clients_may_send_more_fields(tenant: Api) -> None:
    client = (await tenant.call("POST", "add_client", data={"client_name": "pc"})).body
    form = {"auth_token": client["auth_token"], "client": "1", "computer": "pc"}
    for operation in ("client_version", "get_packages"):
        assert (await tenant.anonymous().call("POST", operation, data=form)).status == 200
    session = (await tenant.signed_in()).headers["Authorization"].removeprefix("Bearer ")
    assert (await tenant.call("POST", "logout", data={"token": session, "computer": "pc"})).status == 200


LONG, SHORT = bytes(FORM_LIMIT), bytes(1000)


async def status_of_form(api: Api, logo: bytes) -> int:
    """The status of `add_package` with these bytes as an invalid logo."""
    form = FormData({"package_id": "Acme.Editor", "package_name": "Editor", "package_publisher": "Acme"})
    form.add_field("Logo", logo, filename="logo.png")
    return (await api.call("POST", "add_package", data=form)).status


async def begin_form(api: Api) -> asyncio.StreamWriter:
    """A connection that has sent the headers of a long form without its body."""
    address = urlsplit(api.base_url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        f"POST {address.path}/add_package HTTP/1.1\r\nHost: x\r\nAuthorization: {api.headers['Authorization']}\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {FORM_LIMIT + 1}\r\n\r\n".encode()
    )
    await writer.drain()
    return writer


async def test_a_tenant_may_send_one_long_form_at_a_time(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant, other = await services.tenant(), await services.tenant()
    writer = await begin_form(tenant)
    with monkeypatch.context() as patched:
        patched.setattr("gateway.forwarding.proxy.LONG_FORM_TIMEOUT", 0.01)

        async def is_refused() -> bool:
            return await status_of_form(tenant, LONG) == 503

        await until(is_refused)
        assert await status_of_form(tenant, SHORT) == 400
        assert await status_of_form(other, LONG) == 400
    writer.transport.abort()
    assert await status_of_form(tenant, LONG) == 400
