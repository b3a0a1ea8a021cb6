"""Tenants are separate: every operation of the table, with the ids, names and sessions of another tenant."""

from itertools import product
from typing import Any

import pytest
from yarl import URL

from auth_service.users.throttle_store import RedisFailureCounts
from common.redis import open_redis
from gateway.operations import OPERATIONS, Access, Operation, is_value
from gateway.routing import find_operation
from tests.support.api import Answer
from tests.support.system.fields import select_fields
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
# Deletions come last, so one tenant is enough for all writes.
WRITES = sorted(
    (row for row in GUARDED if row.method != "GET"),
    key=lambda row: (row.method == "DELETE", row.name == "delete_package"),
)
CLIENT_FACING = [row for row in OPERATIONS if row.access in CLIENTS]


def generated_ids(row: Operation) -> set[str]:
    """The path parameters of an operation that are generated ids."""
    return {part for part in row.parts if is_value(part)} - {"{package_id}", "{username}"}


@pytest.fixture(scope="module")
async def owner(services: Services) -> SeedData:
    """The tenant whose objects others try to access."""
    return await seed_tenant(await services.tenant())


@pytest.fixture(scope="module")
async def twin(services: Services, owner: SeedData) -> SeedData:
    """A tenant whose objects have the same names."""
    return await seed_tenant(await services.tenant(), owner.marker)


def test_the_owner_has_a_value_for_every_path_parameter() -> None:
    assert {part.strip("{}") for row in OPERATIONS for part in row.parts if is_value(part)} == UNKNOWN.keys()


async def test_a_session_is_invalid_at_another_tenant(owner: SeedData, each: Api) -> None:
    with every_cell() as cell:
        for row in GUARDED:
            with cell(title(row)):
                answer = await owner.send(
                    row, each.anonymous(), headers=owner.api.headers, data=select_fields(row, owner.form)
                )
                assert answer.status == 401
                assert not owner.leaked_values(answer, owner.parts, owner.form)


async def test_a_session_of_another_tenant_changes_nothing(owner: SeedData, other_tenant: Api) -> None:
    async with owner.assert_unchanged():
        with every_cell() as cell:
            for row in GUARDED:
                with cell(title(row)):
                    stranger = owner.api.anonymous()
                    answer = await owner.send(
                        row, stranger, headers=other_tenant.headers, data=select_fields(row, owner.form)
                    )
                    assert answer.status == 401
                    assert not owner.leaked_values(answer, owner.parts, owner.form)


async def test_the_ids_of_one_tenant_are_unknown_to_another(owner: SeedData, other_tenant: Api) -> None:
    assert (await other_tenant.call("PATCH", "edit_settings", data={"rings": "pilot,everyone"})).status == 200
    async with owner.assert_unchanged():
        with every_cell() as cell:
            for row in filter(has_path_values, GUARDED):
                with cell(title(row)):
                    answer = await owner.send(row, other_tenant, data=select_fields(row, owner.form))
                    assert answer.status == 404
                    assert not owner.leaked_values(answer, segments(row, owner.parts), owner.form)


async def test_ids_are_unknown_to_a_tenant_with_the_same_names(owner: SeedData, twin: SeedData) -> None:
    async with owner.assert_unchanged():
        with every_cell() as cell:
            for row in filter(generated_ids, GUARDED):
                with cell(title(row)):
                    assert (await owner.send(row, twin.api, data=select_fields(row, owner.form))).status == 404


async def test_a_form_with_ids_of_a_tenant_does_not_change_it(owner: SeedData, services: Services) -> None:
    stranger = await seed_tenant(await services.tenant())
    async with owner.assert_unchanged():
        with every_cell() as cell:
            for row in WRITES:
                with cell(title(row)):
                    answer = await stranger.send(
                        row, data=select_fields(row, owner.form), headers={"Content-Range": "bytes 0-3/4"}
                    )
                    assert answer.status < 500
                    assert not owner.leaked_values(answer, owner.form)


async def test_a_list_contains_nothing_of_another_tenant(owner: SeedData, other_tenant: Api) -> None:
    with every_cell() as cell:
        for row in (row for row in GUARDED if row.method == "GET" and not has_path_values(row)):
            with cell(title(row)):
                answer = await owner.send(row, other_tenant)
                assert answer.status in {200, 404}  # 404 for a transfer of the owner
                assert not owner.leaked_values(answer)


async def test_a_form_cannot_use_objects_of_another_tenant(owner: SeedData, twin: SeedData) -> None:
    fields = {
        ("POST", "add_package_version"): ["server_filename"],
        ("POST", "publish_client"): ["server_filename"],
        ("DELETE", "delete_package_version"): ["versions_uids"],
        ("POST", "add_blacklist_entry"): ["client_id", "group"],
    }
    async with owner.assert_unchanged():
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


async def test_equal_names_in_two_tenants_are_separate_objects(owner: SeedData, services: Services) -> None:
    twin = await seed_tenant(await services.tenant(), owner.marker)
    async with owner.assert_unchanged():
        with every_cell() as cell:
            for row in filter(has_path_values, WRITES):
                with cell(title(row)):
                    answer = await send_own(row, twin)
                    if answer.status == 404:  # An earlier operation deleted a required object.
                        twin = await seed_tenant(await services.tenant(), owner.marker)
                        answer = await send_own(row, twin)
                    assert answer.status in {200, 201}


async def send_own(row: Operation, seed_data: SeedData) -> Answer:
    return await seed_data.send(
        row, data=select_fields(row, {**seed_data.form, "versions_uids": seed_data.parts["version_uid"]})
    )


async def test_a_client_token_is_invalid_at_another_tenant(
    owner: SeedData, other_tenant: Api, enforcing: Api, enforcing_single: Api
) -> None:
    kinds: dict[str, dict[str, Any]] = {"client": {"data": owner.form}, "session": {"headers": owner.api.headers}}
    async with owner.assert_unchanged():
        with every_cell() as cell:
            for row, (kind, credentials) in product(CLIENT_FACING, kinds.items()):
                with cell(title(row), kind):
                    for api in (enforcing, enforcing_single):
                        assert (await owner.send(row, api.anonymous(), **credentials)).status == 401
                    answer = await owner.send(row, other_tenant.anonymous(), **credentials)
                    assert answer.status == (204 if row.is_winget else 200)
                    assert not owner.leaked_values(answer)


async def test_a_user_of_one_tenant_cannot_sign_in_to_another(owner: SeedData, either: Api, redis_url: str) -> None:
    credentials = {"username": owner.parts["username"], "password": LONG_PASSWORD}
    assert (await owner.api.anonymous().call("POST", "login", data=credentials)).status == 200
    owner.last_view.clear()  # Its audit log has another entry.
    for operation in ("login", "sign_in"):
        assert (await either.anonymous().call("POST", operation, data=credentials)).status == 401
    async with open_redis(redis_url) as redis:  # All tests share one address, which is throttled after failures.
        await RedisFailureCounts(redis).forget("address:127.0.0.1")


async def test_another_tenant_cannot_end_a_session(owner: SeedData, either: Api) -> None:
    async with owner.assert_unchanged():
        answer = await either.anonymous().call("POST", "logout", data={"token": owner.form["token"]})
    assert answer.status == 200


async def test_a_download_address_is_valid_only_at_its_tenant(owner: SeedData, other_tenant: Api, single: Api) -> None:
    link = URL(owner.link)
    path = link.parts[2:]
    for api, status in ((owner.api, 200), (other_tenant, 403), (single, 403)):
        assert (await api.call("GET", *path, params=link.query)).status == status


async def test_a_signature_is_invalid_for_files_of_another_tenant(owner: SeedData, services: Services) -> None:
    stranger = await seed_tenant(await services.tenant())
    own, theirs = URL(stranger.link), URL(owner.link)
    answer = await stranger.api.call("GET", *own.parts[2:-1], theirs.name, params=theirs.query)
    assert answer.status == 403
    answer = await owner.api.call("GET", *theirs.parts[2:], params=own.query)
    assert answer.status == 403


async def test_a_browser_session_is_valid_only_at_its_tenant(owner: SeedData, either: Api) -> None:
    for page, name in product(("docs", "openapi.json"), (owner.api.tenant_id, either.tenant_id)):
        cookie = {"Cookie": f"session-{name}={owner.form['token']}"}
        assert (await either.anonymous().call("GET", page, headers=cookie)).status == 307


async def test_one_file_id_in_two_tenants_is_two_transfers(owner: SeedData, other_tenant: Api) -> None:
    where = {"X-File-ID": owner.transfer}
    assert (await other_tenant.call("GET", "upload_package_version", headers=where)).status == 404
    async with owner.assert_unchanged():
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
