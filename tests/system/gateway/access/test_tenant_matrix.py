"""Tenants are separate: every operation of the table, with the ids, names and sessions of another tenant."""

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from yarl import URL

from gateway.operations import OPERATIONS, Access, Operation, is_value
from gateway.routing import find_operation
from tests.support.system.fields import select_fields
from tests.support.system.forms import WRITES
from tests.support.system.publishing import send_chunk
from tests.support.system.seed import (
    CLIENTS,
    LONG_PASSWORD,
    UNKNOWN,
    SeedData,
    has_path_values,
    seed_tenant,
    segments,
    title,
)
from tests.support.system.services import Api, Services
from tests.support.tables import every_cell

GUARDED = [row for row in OPERATIONS if row.access in {Access.ADMINISTRATOR, Access.SESSION}]
CLIENT_FACING = [row for row in OPERATIONS if row.access in CLIENTS]
READABLE_NAMES = {"{package_id}", "{username}"}


@pytest.fixture
async def owner(owner: SeedData) -> AsyncIterator[SeedData]:
    """The tenant that must not change. No attack leaves an entry in its audit log."""
    before = (await owner.api.call("GET", "get_audit_log")).body
    yield owner
    assert (await owner.api.call("GET", "get_audit_log")).body == before


@pytest.fixture(scope="module")
async def twin(services: Services, seeded: tuple[SeedData, Any]) -> SeedData:
    """A tenant whose objects have the same names."""
    return await seed_tenant(await services.tenant(), seeded[0].marker)


def has_generated_id(row: Operation) -> bool:
    return bool({part for part in row.parts if is_value(part)} - READABLE_NAMES)


def test_the_owner_has_a_value_for_every_path_parameter() -> None:
    assert {part.strip("{}") for row in OPERATIONS for part in row.parts if is_value(part)} == UNKNOWN.keys()


async def test_no_operation_accepts_the_ids_or_sessions_of_another_tenant(
    owner: SeedData, twin: SeedData, other_tenant: Api, single: Api
) -> None:
    assert (await other_tenant.call("PATCH", "edit_settings", data={"rings": "pilot,everyone"})).status == 200
    own, foreign = owner.api.headers, replace(owner.api, headers=other_tenant.headers)
    lists = [row for row in GUARDED if row.method == "GET" and not has_path_values(row)]
    attacks = [
        ("lists of another tenant", other_tenant, lists, {200, 404}),  # 404 for a transfer of the owner
        ("a session at another tenant", replace(other_tenant, headers=own), GUARDED, {401}),
        ("a session at an alias", replace(other_tenant.by_alias(), headers=own), GUARDED, {401}),
        ("a session at the single tenant", replace(single, headers=own), GUARDED, {401}),
        ("a session of another tenant", foreign, GUARDED, {401}),
        ("ids at another tenant", other_tenant, filter(has_path_values, GUARDED), {404}),
        ("ids at a tenant with the same names", twin.api, filter(has_generated_id, GUARDED), {404}),
    ]
    with every_cell() as cell:
        for attack, api, rows, statuses in attacks:
            for row in rows:
                with cell(attack, title(row)):
                    form = {} if row in lists else select_fields(row, owner.form)
                    answer = await owner.send(row, api, data=form)
                    assert answer.status in statuses
                    if api is not twin.api:
                        assert not owner.leaked_values(answer, segments(row, owner.parts), form)


async def test_a_form_with_ids_of_a_tenant_does_not_change_it(owner: SeedData, services: Services) -> None:
    stranger = await seed_tenant(await services.tenant())
    with every_cell() as cell:
        for row in WRITES:
            with cell(title(row)):
                form = select_fields(row, owner.form)
                answer = await stranger.send(row, data=form, headers={"Content-Range": "bytes 0-3/4"})
                assert answer.status < 500
                assert not owner.leaked_values(answer, owner.form)


async def test_a_form_cannot_use_objects_of_another_tenant(owner: SeedData, twin: SeedData) -> None:
    fields = {
        ("POST", "add_package_version"): ["server_filename"],
        ("POST", "publish_client"): ["server_filename"],
        ("DELETE", "delete_package_version"): ["versions_uids"],
        ("POST", "add_blacklist_entry"): ["client_id", "group"],
    }
    with every_cell() as cell:
        for (method, operation), names in fields.items():
            path = [twin.parts["package_id"]] if operation.endswith("version") else []
            for name in names:
                with cell(operation, name):
                    others = {"client_id", "group"} - {name}
                    form = {field: value for field, value in owner.form.items() if field not in others}
                    row, _ = find_operation(method, (operation, *path))
                    answer = await twin.api.call(method, operation, *path, data=select_fields(row, form))
                    assert answer.status == 404
                    assert not owner.leaked_values(answer, owner.form)


async def test_a_client_token_is_invalid_at_another_tenant(
    owner: SeedData, other_tenant: Api, enforcing: Api, enforcing_single: Api
) -> None:
    kinds: dict[str, dict[str, Any]] = {"client": {"data": owner.form}, "session": {"headers": owner.api.headers}}
    with every_cell() as cell:
        for row, (kind, credentials) in product(CLIENT_FACING, kinds.items()):
            with cell(title(row), kind):
                for api in (enforcing, enforcing_single):
                    assert (await owner.send(row, api.anonymous(), **credentials)).status == 401
                answer = await owner.send(row, other_tenant.anonymous(), **credentials)
                assert answer.status == (204 if row.is_winget else 200)
                assert not owner.leaked_values(answer)


async def test_a_user_signs_in_and_out_at_their_own_tenant_only(
    owner: SeedData, either: Api, services: Services
) -> None:
    credentials = {"username": owner.parts["username"], "password": LONG_PASSWORD}
    for operation in ("login", "sign_in"):
        assert (await either.anonymous().call("POST", operation, data=credentials)).status == 401
    await services.failures.forget("address:127.0.0.1")  # All tests share one address.
    answer = await either.anonymous().call("POST", "logout", data={"token": owner.form["token"]})
    assert answer.status == 200
    assert (await owner.api.call("GET", "test")).status == 200


async def test_a_download_address_is_valid_only_at_its_tenant(owner: SeedData, twin: SeedData, single: Api) -> None:
    link, own = URL(owner.link), URL(twin.link)
    path, other_file = link.parts[2:], (*own.parts[2:-1], link.name)
    for api, parts, query, status in (
        (owner.api, path, link.query, 200),
        (twin.api, path, link.query, 403),
        (single, path, link.query, 403),
        (twin.api, other_file, link.query, 403),
        (owner.api, path, own.query, 403),
    ):
        assert (await api.anonymous().call("GET", *parts, params=query)).status == status


async def test_a_browser_session_is_valid_only_at_its_tenant(owner: SeedData, either: Api) -> None:
    for page, name in product(("docs", "openapi.json", "dashboard"), (owner.api.tenant_id, either.tenant_id)):
        cookie = {"Cookie": f"session-{name}={owner.form['token']}"}
        assert (await either.anonymous().call("GET", page, headers=cookie)).status == 307


async def test_one_file_id_in_two_tenants_is_two_transfers(owner: SeedData, other_tenant: Api) -> None:
    where = {"X-File-ID": owner.transfer}
    assert (await other_tenant.call("GET", "upload_package_version", headers=where)).status == 404
    answer = await send_chunk(other_tenant, owner.transfer, b"x" * 100, 0, 100)
    assert (answer.status, answer.body["received"], answer.body["complete"]) == (200, 100, True)


async def test_the_audit_log_has_only_entries_of_its_tenant(owner: SeedData, other_tenant: Api) -> None:
    newest = (await owner.api.call("GET", "get_audit_log")).body[0]["sequence"]
    await other_tenant.call("POST", "add_user", data={"username": "helga", "password": LONG_PASSWORD})
    for query in ({"before": newest}, {"user": owner.parts["username"]}, {"operation": "add_package"}):
        answer = await other_tenant.call("GET", "get_audit_log", params=query)
        assert answer.status == 200
        assert not owner.leaked_values(answer, query)
        assert {entry["tenant_id"] for entry in answer.body} <= {other_tenant.tenant_id}
