"""Headers that only proxies and services may send, and values that would become headers."""

from collections.abc import Iterator
from itertools import product
from typing import Any
from uuid import uuid4

import pytest

from common.auth.internal_tokens import INTERNAL_TOKEN, REQUEST_ID, Caller, sign
from common.auth.roles import ADMINISTRATOR
from common.http.middleware import AUDIT_HEADER
from common.redis import TENANT_VERSION_HEADER
from common.service_client.client import ServiceClient
from common.tenants import Tenant
from gateway.forwarding.proxy import REQUEST_HEADERS
from gateway.operations import OPERATIONS, is_value
from tests.support.factories import KEY, make_tenant
from tests.support.system.publishing import add_package, package_id, publish, send_chunk
from tests.support.system.safe_headers import check_no_injection
from tests.support.system.seed import UNKNOWN, SeedData, segments, title
from tests.support.system.services import Api, Services
from tests.support.tables import every_cell


def forged() -> Iterator[tuple[str, str]]:
    for name in ("X-Forwarded-For", "X-Real-IP", "X-Client-IP", "True-Client-IP", "X-Internal-Ip"):
        yield name, "198.51.100.7"
    yield "Forwarded", "for=198.51.100.7;host=evil.example;proto=https"
    yield "X-Forwarded-Host", "evil.example"
    yield "X-Forwarded-Proto", "https"
    yield "X-Forwarded-Prefix", "/evil"
    yield REQUEST_ID, "f" * 32
    yield "X-Request-Id", "f" * 32
    yield TENANT_VERSION_HEADER, "f" * 32
    yield AUDIT_HEADER, '{"username": "mallory"}'
    for name in ("X-Original-Url", "X-Rewrite-Url", "X-Http-Method-Override", "X-Method-Override"):
        yield name, "/internal/find_tenant" if "Url" in name else "DELETE"


async def test_forwarding_headers_of_a_caller_are_ignored(either: Api, other_tenant: Api) -> None:
    stranger = Caller(Tenant(other_tenant.tenant_id)).as_administrator("mallory", "x", ADMINISTRATOR)
    token = {INTERNAL_TOKEN: sign(KEY, stranger, service="catalog_service", operation="add_package")}
    name = f"Forged.{other_tenant.tenant_id}"
    form = {"package_id": name, "package_name": "x", "package_publisher": "x"}
    answer = await either.call("POST", "add_package", data=form, headers={**dict(forged()), **token})
    assert answer.status == 200, answer.body
    assert answer.headers["X-Request-Id"] != "f" * 32
    assert not [header for header in answer.headers if header.lower().startswith("x-internal")]
    entry = (await either.call("GET", "get_audit_log")).body[0]
    assert entry["request_id"] == answer.headers["X-Request-Id"]
    assert (entry["ip"], entry["user"], entry["target"]) == ("127.0.0.1", "admin", {"package_id": name})
    assert (await other_tenant.call("POST", "get_packages")).body == []


async def test_addresses_in_responses_have_the_host_of_the_request(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    published = await publish(tenant, name)
    answer = await tenant.call("GET", "get_specific_package_version", published.uid, headers=dict(forged()))
    assert answer.body["INSTALLER_URL"].startswith(f"{tenant.base_url}/download/")


async def test_the_gateway_does_not_accept_an_internal_token(tenant: Api) -> None:
    caller = Caller(Tenant(tenant.tenant_id)).as_administrator("admin", "x", ADMINISTRATOR)
    for row in OPERATIONS:
        token = {INTERNAL_TOKEN: sign(KEY, caller, service=row.service, operation=row.name)}
        expected = await tenant.anonymous().call(row.method, *segments(row, UNKNOWN))
        answer = await tenant.anonymous().call(row.method, *segments(row, UNKNOWN), headers=token)
        assert answer.status == expected.status


async def test_forged_headers_do_not_bypass_allowed_networks(services: Services) -> None:
    tenant = await services.tenant()
    shut = make_tenant(allowed_networks=("198.51.100.0/24",))
    await services.operator.tenants.create(shut)
    headers = {**tenant.headers, **dict(forged())}
    for row in OPERATIONS:
        answer = await services.api(shut.tenant_id).call(row.method, *segments(row, UNKNOWN), headers=headers)
        assert (answer.status, answer.body["code"]) == (403, 403 if row.is_winget else "network_not_allowed")


SPLITS = ("\nX-Injected: 1", "\rX-Injected: 1", "\0", "\x01", "\x7f")
# Line breaks in addresses: escaped once, twice, overlong, and as characters that some programs truncate to CR and LF.
BREAKS = ("%0d%0a", "%0a", "%250d%250a", "%c0%8d%c0%8a", "%e5%98%8d%e5%98%8a")
ESCAPED = tuple(f"{line_break}X-Injected:1" for line_break in BREAKS)
HEADERS = (*REQUEST_HEADERS, "Authorization", "Cookie", "Origin", "Referer", "X-Forwarded-For", "X-Forwarded-Host")
NAMES = ("before", "limit", "user", "operation", "expires", "signature", "next", "include_disabled")
NO_TEXT = ("\xff", "a\xc3", "\xed\xa0\x80", "\xc3\xa9", "\t", " ", "a\tb", "\x80" * 1000)


async def test_no_part_of_an_address_becomes_a_header(owner: SeedData) -> None:
    with every_cell() as cell:
        for row, escaped in product(OPERATIONS, ESCAPED):
            for part in filter(is_value, row.parts):
                with cell(title(row), part, escaped):
                    parts = {**owner.parts, part.strip("{}"): f"a{escaped}"}
                    answer = await owner.api.call_raw(row.method, "/".join([owner.api.path, *segments(row, parts)]))
                    check_no_injection(answer)
                    assert answer.status >= 400 or (row.is_winget and answer.status == 204)


async def test_no_query_becomes_a_header(owner: SeedData) -> None:
    with every_cell() as cell:
        for row in (row for row in OPERATIONS if row.method == "GET"):
            path = "/".join([owner.api.path, *segments(row, owner.parts)])
            for escaped in (*ESCAPED, "\xff", "%ff", "%", "%zz", "#", "?", "<>\"'"):
                with cell(row.path, escaped):
                    query = "&".join(f"{name}=a{escaped}" for name in NAMES)
                    check_no_injection(await owner.api.call_raw("GET", f"{path}?{query}"))
            with cell(row.path, "name"):
                check_no_injection(await owner.api.call_raw("GET", f"{path}?x\xff=a"))


async def test_a_query_with_an_escaped_line_break_reaches_the_operation(tenant: Api) -> None:
    query = "&".join(f"{name}=a{ESCAPED[0]}" for name in NAMES)
    assert (await tenant.call_raw("GET", f"{tenant.path}/get_users?{query}")).status == 200


async def test_a_header_has_only_one_line(tenant: Api) -> None:
    with every_cell() as cell:
        for header in HEADERS:
            for split in SPLITS:
                with cell(header, repr(split)):
                    answer = await tenant.call_raw("GET", f"{tenant.path}/get_users", {header: f"a{split}"})
                    check_no_injection(answer)
                    # llhttp accepts the delete character, and rejects all line breaks.
                    assert answer.status == 400 or split == "\x7f"


async def test_a_header_with_invalid_text_is_no_server_error(tenant: Api) -> None:
    paths = ("/get_users", "/upload_package_version", "/get_audit_log")
    with every_cell() as cell:
        for header, value, path in [*product(HEADERS, NO_TEXT, paths)][::4]:
            with cell(path, header, repr(value[:4])):
                check_no_injection(await tenant.call_raw("GET", f"{tenant.path}{path}", {header: value}))


async def test_the_chunks_of_a_transfer_are_for_one_replica(tenant: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, opened = list[str](), ServiceClient.open

    def record(*arguments: Any, replica_key: str = "", **options: Any) -> Any:
        keys.append(replica_key)
        return opened(*arguments, replica_key=replica_key, **options)

    monkeypatch.setattr(ServiceClient, "open", record)
    for start in (0, 5):
        assert (await send_chunk(tenant, "a-transfer", b"0123456789", start, start + 5)).status == 200
    assert [key for key in keys if key] == ["a-transfer"] * 2


async def test_invalid_bytes_of_a_header_are_not_dropped(tenant: Api) -> None:
    transfer = uuid4().hex
    await send_chunk(tenant, transfer, b"0123456789", 0, 5)
    for value, status in {transfer: 200, f"{transfer}\xff": 400, f"\x80{transfer}": 400}.items():
        answer = await tenant.call_raw("GET", f"{tenant.path}/upload_package_version", {"X-File-ID": value})
        assert answer.status == status, value
