"""The users of a tenant: listing, adding, deleting, and password changes."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from auth_service.users.throttle_store import NETWORK_FAILURE_LIMIT
from common.auth.internal_tokens import Caller
from tests.support.api import Answer
from tests.support.services.auth import PASSWORD, Auth
from tests.support.tables import each

NEW = "another password for tests"


@pytest.fixture
async def caller(auth: Auth) -> Caller:
    """`admin`, one of two users of their tenant, with a session."""
    admin = await auth.tenant("admin", "ada")
    session = await auth.session(admin, await auth.token(admin))
    assert session is not None
    return replace(admin, session_id=session.session_id)


async def names(auth: Auth, caller: Caller) -> list[str]:
    return [user["username"] for user in (await auth.call(caller, "GET", "get_users")).body]


async def change_password(auth: Auth, caller: Caller, old: str = PASSWORD, new: str = NEW) -> Answer:
    form = {"old_password": old, "new_password": new}
    return await auth.call(caller, "POST", "change_password", data=form)


async def test_users_are_listed_by_name_and_without_their_passwords(auth: Auth, caller: Caller) -> None:
    answer = await auth.call(caller, "GET", "get_users")

    assert answer.status == 200
    assert [set(user) for user in answer.body] == [
        {"username", "created_at", "last_sign_in", "role", "login", "must_change_password", "break_glass"}
    ] * 2
    assert await names(auth, caller) == ["ada", "admin"]
    created = datetime.fromisoformat(answer.body[0]["created_at"])
    assert created.utcoffset() == timedelta(0)


async def test_an_added_user_can_sign_in(auth: Auth, caller: Caller) -> None:
    answer = await auth.call(caller, "POST", "add_user", data={"username": "bob@example.com", "password": NEW})

    assert (answer.status, answer.body) == (201, {"Message": "User was added successfully!"})
    assert (await auth.login(caller, "bob@example.com", NEW)).status == 200


async def test_a_username_is_unique_within_its_tenant(auth: Auth, caller: Caller) -> None:
    answer = await auth.call(caller, "POST", "add_user", data={"username": "ada", "password": NEW})

    assert (answer.status, answer.body["code"]) == (409, "user_exists")
    assert (await auth.login(caller, "ada", NEW)).status == 401


@each("username", ["", "a b", "a/b", "a\\b", "é", "a:b", "a\0", "$ne", "a" * 129, "a\n", ".", ".."])
async def test_a_username_has_allowed_characters_only(auth: Auth, caller: Caller, username: str) -> None:
    answer = await auth.call(caller, "POST", "add_user", data={"username": username, "password": NEW})

    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, "username")


@each("username", ["a", "a" * 128, "A.b_c-d+e@f.g", "0", "...", "+"])
async def test_any_other_username_signs_in_and_can_be_deleted(auth: Auth, caller: Caller, username: str) -> None:
    await auth.add_user(caller, username)

    assert (await auth.login(caller, username)).status == 200
    assert (await auth.call(caller, "DELETE", "delete_user", username)).status == 200


@each("password", ["", "a" * 11, "a" * 1025])
async def test_a_password_has_a_minimum_and_a_maximum_length(auth: Auth, caller: Caller, password: str) -> None:
    answer = await auth.call(caller, "POST", "add_user", data={"username": "bob", "password": password})

    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, "password")
    assert not password or password not in str(answer.body)
    assert "bob" not in await names(auth, caller)


async def test_a_deleted_user_is_gone(auth: Auth, caller: Caller) -> None:
    answer = await auth.call(caller, "DELETE", "delete_user", "ada")

    assert (answer.status, answer.body) == (200, {"Message": "User was deleted successfully!"})
    assert await names(auth, caller) == ["admin"]
    assert (await auth.login(caller, "ada")).status == 401


async def test_a_deleted_users_sessions_end(auth: Auth, caller: Caller) -> None:
    tokens = [await auth.token(caller, "ada") for _ in range(2)]

    await auth.call(caller, "DELETE", "delete_user", "ada")

    assert [await auth.session(caller, token) for token in tokens] == [None, None]


async def test_an_unknown_user_cannot_be_deleted(auth: Auth, caller: Caller) -> None:
    await auth.tenant("admin", "bob")  # in another tenant
    for unknown in ("nobody", "bob", "{}"):
        answer = await auth.call(caller, "DELETE", "delete_user", unknown)
        assert (answer.status, answer.body["code"]) == (404, "user_not_found")


async def test_the_last_user_cannot_be_deleted(auth: Auth) -> None:
    caller = await auth.tenant()
    token = await auth.token(caller)

    answer = await auth.call(caller, "DELETE", "delete_user", "admin")
    unknown = await auth.call(caller, "DELETE", "delete_user", "nobody")

    assert [(one.status, one.body["code"]) for one in (answer, unknown)] == [
        (409, "last_user"),
        (404, "user_not_found"),
    ]
    assert await auth.session(caller, token)
    assert (await auth.login(caller)).status == 200


async def test_a_user_deleted_twice_at_once_is_deleted_once(auth: Auth, caller: Caller) -> None:
    answers = await asyncio.gather(
        *(api.call(caller, "DELETE", "delete_user", "ada") for api in (auth.api, auth.replica))
    )

    assert sorted(answer.status for answer in answers) == [200, 404]


async def test_a_changed_password_replaces_the_old_one(auth: Auth, caller: Caller) -> None:
    for _ in range(2):  # A client may repeat it.
        answer = await change_password(auth, caller)
        assert (answer.status, answer.body) == (200, {"Message": "Password was changed successfully!"})
    assert (await auth.login(caller, password=NEW)).status == 200
    assert (await auth.login(caller, password=PASSWORD)).status == 401


async def test_a_changed_password_ends_the_users_other_sessions(auth: Auth) -> None:
    caller = await auth.tenant("admin", "ada")
    mine, other, adas = [await auth.token(caller, name) for name in ("admin", "admin", "ada")]
    session = await auth.session(caller, mine)
    assert session is not None

    await change_password(auth, replace(caller, session_id=session.session_id))

    assert await auth.session(caller, mine) == session
    assert await auth.session(caller, other) is None
    assert await auth.session(caller, adas)


async def test_a_password_change_requires_the_old_password(auth: Auth, caller: Caller) -> None:
    other = await auth.token(caller)

    answer = await change_password(auth, caller, old="not this password")

    assert (answer.status, answer.body["code"]) == (401, "bad_credentials")
    assert (await auth.login(caller)).status == 200
    assert await auth.session(caller, other)


async def test_attempts_with_a_wrong_old_password_are_limited(auth: Auth, caller: Caller) -> None:
    for _ in range(NETWORK_FAILURE_LIMIT):
        assert (await change_password(auth, caller, old="not this password")).status == 401

    answer = await change_password(auth, caller)

    assert (answer.status, answer.body["code"]) == (429, "too_many_failures")


@each(
    ("form", "field"),
    [
        ({"old_password": PASSWORD, "new_password": "a" * 11}, "new_password"),
        ({"old_password": PASSWORD}, "new_password"),
        ({"new_password": NEW}, "old_password"),
    ],
)
async def test_a_change_needs_both_passwords(auth: Auth, caller: Caller, form: dict[str, str], field: str) -> None:
    answer = await auth.call(caller, "POST", "change_password", data=form)

    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, field)
    assert (await auth.login(caller)).status == 200


async def test_a_user_deleted_meanwhile_changes_nothing(auth: Auth, caller: Caller) -> None:
    await auth.call(caller, "DELETE", "delete_user", "ada")

    answer = await change_password(auth, replace(caller, username="ada"))

    assert (answer.status, answer.body["code"]) == (401, "bad_credentials")


async def test_writes_have_an_audit_target_without_secrets(auth: Auth, caller: Caller) -> None:
    added = await auth.call(caller, "POST", "add_user", data={"username": "bob", "password": NEW})
    deleted = await auth.call(caller, "DELETE", "delete_user", "bob")
    changed = await change_password(auth, caller)

    targets = [answer.audit_target for answer in (added, deleted, changed)]
    added_target = {"username": "bob", "role": "administrator"}
    assert targets == [added_target, {"username": "bob"}, {"username": "admin"}]
