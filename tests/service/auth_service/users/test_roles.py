"""The roles of users: given, changed, listed, and the last administrator."""

import asyncio

import pytest

from common.auth.internal_tokens import Caller
from common.auth.roles import Role
from tests.support.services.auth import Auth
from tests.support.tables import each

LONG_PASSWORD = "another password for tests"
UNKNOWN = ("root", "Administrator", "viewer,root", "viewer admin", "*", "none", "$ne")
NONE = ("", ",", " , ")


@pytest.fixture
async def caller(auth: Auth) -> Caller:
    """`admin`, one of two administrators."""
    return await auth.tenant("admin", "ada")


async def roles(auth: Auth, caller: Caller) -> dict[str, list[str]]:
    return {user["username"]: user["role"] for user in (await auth.call(caller, "GET", "get_users")).body}


async def test_a_user_without_a_role_is_an_administrator(auth: Auth, caller: Caller) -> None:
    assert await roles(auth, caller) == {"ada": ["administrator"], "admin": ["administrator"]}


@pytest.mark.parametrize(
    "fields",
    [
        [("role", "auditor"), ("role", "publisher")],
        [("role", "auditor,publisher")],
        [("role", " auditor , publisher,"), ("role", "publisher")],
    ],
)
async def test_a_role_is_repeated_or_comma_separated(auth: Auth, caller: Caller, fields: list[tuple[str, str]]) -> None:
    form = [("username", "bob"), ("password", LONG_PASSWORD), *fields]
    assert (await auth.call(caller, "POST", "add_user", data=form)).status == 201
    assert (await auth.call(caller, "PATCH", "edit_user", "ada", data=fields)).status == 200
    expected = ["publisher", "auditor"]
    assert await roles(auth, caller) == {"ada": expected, "admin": ["administrator"], "bob": expected}


@each("role", [*UNKNOWN, *NONE])
async def test_an_unknown_role_or_none_is_refused(auth: Auth, caller: Caller, role: str) -> None:
    form = {"username": "bob", "password": LONG_PASSWORD, "role": role}
    added = await auth.call(caller, "POST", "add_user", data=form)
    edited = await auth.call(caller, "PATCH", "edit_user", "ada", data={"role": role})
    for answer in (added, edited):
        assert (answer.status, answer.body["code"], answer.body["params"]["field"]) == (400, "invalid_field", "role")
    assert await roles(auth, caller) == {"ada": ["administrator"], "admin": ["administrator"]}


async def test_an_edit_needs_a_role(auth: Auth, caller: Caller) -> None:
    answer = await auth.call(caller, "PATCH", "edit_user", "ada")
    assert (answer.status, answer.body["detail"]) == (400, "role: must have at least one role")


async def test_the_roles_of_an_unknown_user_cannot_be_changed(auth: Auth, caller: Caller) -> None:
    await auth.tenant("admin", "bob")  # in another tenant
    for unknown in ("nobody", "bob", "{}"):
        answer = await auth.call(caller, "PATCH", "edit_user", unknown, data={"role": "viewer"})
        assert (answer.status, answer.body["code"]) == (404, "user_not_found")


async def test_the_last_administrator_is_neither_demoted_nor_deleted(auth: Auth, caller: Caller) -> None:
    assert (await auth.call(caller, "PATCH", "edit_user", "ada", data={"role": "viewer,auditor"})).status == 200
    demoted = await auth.call(caller, "PATCH", "edit_user", "admin", data={"role": "publisher"})
    deleted = await auth.call(caller, "DELETE", "delete_user", "admin")
    assert [(answer.status, answer.body["code"]) for answer in (demoted, deleted)] == [(409, "last_user")] * 2
    kept = await auth.call(caller, "PATCH", "edit_user", "admin", data={"role": "administrator,viewer"})
    assert kept.status == 200
    assert await roles(auth, caller) == {"ada": ["viewer", "auditor"], "admin": ["viewer", "administrator"]}
    assert (await auth.call(caller, "DELETE", "delete_user", "ada")).status == 200


async def test_demotions_and_deletions_at_once_leave_one_administrator(auth: Auth) -> None:
    names = [f"user{number}" for number in range(10)]
    caller = await auth.tenant(*names)
    await asyncio.gather(
        *(
            auth.api.call(caller, "DELETE", "delete_user", name)
            if number % 2
            else auth.replica.call(caller, "PATCH", "edit_user", name, data={"role": "viewer"})
            for number, name in enumerate(names)
        )
    )
    left = (await roles(auth, caller)).values()
    assert list(left).count(["administrator"]) == 1


async def test_an_edit_has_an_audit_target(auth: Auth, caller: Caller) -> None:
    for name in ("ada", "nobody"):
        answer = await auth.call(caller, "PATCH", "edit_user", name, data={"role": "viewer,auditor"})
        assert answer.audit_target["username"] == name


async def test_the_gateway_finds_the_roles_of_the_caller_only(auth: Auth, caller: Caller) -> None:
    await auth.call(caller, "PATCH", "edit_user", "ada", data={"role": "viewer"})
    for name, expected in (("ada", [Role.VIEWER]), ("admin", [Role.ADMINISTRATOR]), ("nobody", [])):
        user = Caller(caller.tenant).as_administrator(name, "", ())
        answer = await auth.call(user, "POST", "find_roles", data={"username": "admin"})
        assert (answer.status, answer.body) == (200, {"roles": expected})
