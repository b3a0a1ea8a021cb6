"""Access by permission: a user of each role at every operation of the table, and changes of roles."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from common.auth.internal_tokens import Deployment
from common.auth.roles import PERMISSIONS, USER_ROLES, Permission, Role
from gateway.operations import OPERATIONS, Access, Operation
from tests.support.api import Answer
from tests.support.system.gateways import at_gateway, run_gateway, single_gateway
from tests.support.system.pages import sign_in
from tests.support.system.problems import check_error
from tests.support.system.seed import CLIENTS, LONG_PASSWORD, UNKNOWN, segments, title
from tests.support.system.services import Api, Services, bearer
from tests.support.tables import every_cell

WITH_USERS = {Access.ADMINISTRATOR, *CLIENTS}
GUARDED = [row for row in OPERATIONS if row.access is Access.ADMINISTRATOR and row.permission is not Permission.NONE]


async def add_user(admin: Api, role: str, name: str = "") -> Api:
    """A session of a new user with these roles."""
    form = {"username": name or f"the-{role}", "password": LONG_PASSWORD, "role": role}
    answer = await admin.call("POST", "add_user", data=form)
    assert answer.status == 201, answer.body
    return await admin.signed_in(form["username"], LONG_PASSWORD)


async def set_role(admin: Api, name: str, role: str) -> None:
    answer = await admin.call("PATCH", "edit_user", name, data={"role": role})
    assert answer.status == 200, answer.body


@pytest.fixture(scope="module")
async def users(services: Services) -> Mapping[Role, Api]:
    """A user of each role."""
    admin = await services.tenant()
    return {role: await add_user(admin, role) for role in USER_ROLES}


def is_allowed(row: Operation, role: Role) -> bool:
    """Whether the two tables allow it."""
    return row.access not in WITH_USERS or row.permission in PERMISSIONS[role]


def check_access(row: Operation, role: Role, answer: Answer) -> None:
    if is_allowed(row, role):
        assert "permission_missing" not in str(answer.body)
        assert answer.status < 500
        assert answer.status not in {401, 403} or row.access in {Access.SIGNED, Access.PAGE}
    else:
        check_error(row, answer, 403, "permission_missing")
        assert row.is_winget or answer.body["params"] == {"permission": row.permission}


async def test_an_operation_is_open_to_the_roles_with_its_permission(
    users: Mapping[Role, Api], services: Services, redis_url: str
) -> None:
    async with single_gateway(services, redis_url, users[Role.VIEWER]) as single:
        with every_cell() as cell:
            for number, (row, role) in enumerate(product(OPERATIONS, USER_ROLES)):
                with cell(title(row), role):
                    api = users[role] if number % 2 else replace(single, headers=users[role].headers)
                    check_access(row, role, await api.call(row.method, *segments(row, UNKNOWN)))


async def test_an_api_token_may_do_what_its_role_may(services: Services) -> None:
    admin = await services.tenant(client_authentication=True)
    with every_cell() as cell:
        for role in set(Role) - {Role.ADMINISTRATOR}:
            answer = await admin.call("POST", "add_token", data={"name": role, "role": role})
            token = replace(admin, headers=bearer(answer.body["token"]))
            for row in OPERATIONS:
                with cell(title(row), role):
                    answer = await token.call(row.method, *segments(row, UNKNOWN))
                    if row.access is Access.SESSION:
                        check_error(row, answer, 401, "not_authenticated")
                    else:
                        check_access(row, role, answer)


async def test_several_roles_add_up(services: Services) -> None:
    admin = await services.tenant()
    user = await add_user(admin, "publisher,auditor", "both")
    assert (await user.call("DELETE", "delete_package", "No.Such")).status == 404
    assert (await user.call("GET", "get_audit_log")).status == 200
    assert (await user.call("GET", "get_users")).status == 403


@pytest.mark.parametrize("deployment", Deployment)
async def test_a_change_of_roles_counts_in_an_open_session_at_every_gateway(
    services: Services, redis_url: str, deployment: Deployment
) -> None:
    admin = await services.tenant()
    user = await add_user(admin, "viewer", "ada")
    cookie = await sign_in(user, username="ada", password=LONG_PASSWORD)
    async with run_gateway(services, redis_url) as address, single_gateway(services, redis_url, user) as single:
        other = single if deployment is Deployment.SINGLE else at_gateway(user, address)
        for role, status in (("viewer", 403), ("auditor", 200), ("publisher", 403), ("administrator", 200)):
            await set_role(admin, "ada", role)
            for api in (user, other):
                assert (await api.call("GET", "get_audit_log")).status == status, (role, api.base_url)
            page = await at_gateway(user, address).anonymous().call("GET", "dashboard", "audit", headers=cookie)
            assert page.status == status, role


async def test_a_user_of_one_tenant_has_no_rights_from_another(services: Services) -> None:
    first, second = await services.tenant(), await services.tenant()
    viewer = await add_user(first, "viewer", "ada")
    boss = await add_user(second, "administrator", "ada")
    assert (await boss.call("GET", "get_users")).status == 200
    assert (await viewer.call("GET", "get_users")).status == 403
    await set_role(second, "ada", "viewer")
    await set_role(first, "ada", "administrator")
    assert (await boss.call("GET", "get_users")).status == 403
    assert (await viewer.call("GET", "get_users")).status == 200


async def test_refused_writes_are_in_the_audit_log(services: Services) -> None:
    admin = await services.tenant()
    viewer = await add_user(admin, "viewer", "ada")
    await set_role(admin, "ada", "auditor")
    audited = [row for row in GUARDED if row.audited]
    for row in audited:
        assert (await viewer.call(row.method, *segments(row, UNKNOWN))).status == 403, title(row)
    entries = (await admin.call("GET", "get_audit_log", params={"user": "ada", "outcome": "refused"})).body
    refused = [(entry["operation"], entry["status"]) for entry in reversed(entries)]
    assert refused == [(row.name, 403) for row in audited]
    (change,) = (await admin.call("GET", "get_audit_log", params={"operation": "edit_user", "user": "admin"})).body
    assert change["target"] == {"username": "ada"}
    assert change["changes"] == {"role": {"before": "viewer", "after": "auditor"}}


async def test_a_viewer_sees_no_token_of_a_client(services: Services) -> None:
    admin = await services.tenant()
    viewer = await add_user(admin, "viewer", "ada")
    token = (await admin.call("POST", "add_client", data={"client_name": "pc-1"})).body["auth_token"]
    cookie = await sign_in(viewer, username="ada", password=LONG_PASSWORD)
    answers = [
        await viewer.call("GET", "get_clients"),
        await viewer.call("GET", "find_clients"),
        await viewer.anonymous().call("GET", "dashboard", "clients", headers=cookie),
    ]
    for answer in answers:
        assert answer.status == 200
        assert "pc-1" in str(answer.body)
        assert token not in str(answer.body)
