"""Bodies: malformed ones and unknown fields are refused and write nothing, and long forms come one at a time."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Mapping
from itertools import cycle, product
from urllib.parse import urlencode, urlsplit

import pytest
from aiohttp import FormData

from common.http.bodies import FORM_LIMIT
from gateway.operations import OPERATIONS, Operation
from tests.support.system.forms import (
    CHUNK,
    FORM,
    MULTIPART,
    TRANSFER,
    WITH_BODY,
    Body,
    contents_of,
    encoded,
    multipart,
    own_form,
    part,
)
from tests.support.system.publishing import INSTALLER, add_package, package_id
from tests.support.system.seed import UNKNOWN, SeedData, seed_tenant, segments, title
from tests.support.system.services import Api, Services
from tests.support.tables import each, every_cell, sampled
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


def has_required_fields(row: Operation) -> bool:
    return any(content["schema"].get("required") for content in contents_of(row).values())


WITHOUT_BODY = [row for row in OPERATIONS if row not in WITH_BODY]


@sampled(8, complete=2)
async def test_a_malformed_body_is_rejected_and_writes_nothing(owner: SeedData, every: int) -> None:
    forms = {row: own_form(row, owner) for row in WITH_BODY}
    cells = [(row, *body) for row in WITH_BODY for body in {**malformed(forms[row]), **compressed(forms[row])}.items()]
    with every_cell() as cell:
        for row, kind, (headers, body) in cells[::every]:
            with cell(title(row), kind):
                answer = await owner.send(row, headers={**TRANSFER, **headers}, data=body)
                assert answer.status == 400


async def test_a_broken_transfer_is_rejected_and_writes_nothing(owner: SeedData) -> None:
    with every_cell() as cell:
        for row, (kind, end) in zip(WITH_BODY, cycle(BROKEN_TRANSFERS.items()), strict=False):
            with cell(title(row), kind):
                path = "/".join([owner.api.path, *segments(row, owner.parts)])
                form = urlencode(own_form(row, owner)).encode()
                body = f"{len(form):x}\r\n".encode() + form + b"\r\n" + end
                answer = await owner.api.call_raw(row.method, path, {**TRANSFER, **CHUNKED}, body)
                assert answer.status == 400


async def test_an_empty_body_is_rejected_if_a_field_is_required(tenant: Api) -> None:
    seed_data = await seed_tenant(tenant)
    with every_cell() as cell:
        for row, kind in product(WITH_BODY, (FORM, MULTIPART, "application/json", "nonsense")):
            with cell(title(row), kind):
                answer = await seed_data.send(row, headers={**TRANSFER, "Content-Type": kind})
                assert answer.status == 400 or (answer.status == 200 and not has_required_fields(row))


@sampled(8, complete=2)
async def test_an_unexpected_body_is_harmless(owner: SeedData, every: int) -> None:
    cells = [*product(WITHOUT_BODY, malformed(owner.form).items())]
    with every_cell() as cell:
        for row, (kind, (headers, body)) in cells[::every]:
            with cell(title(row), kind):
                answer = await owner.api.call(row.method, *segments(row, UNKNOWN), headers=headers, data=body)
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
