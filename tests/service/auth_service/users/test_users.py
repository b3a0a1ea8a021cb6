"""The users of a tenant: listing, adding, deleting, and password changes."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from auth_service.users.throttle_store import NETWORK_FAILURE_LIMIT
from common.auth.internal_tokens import Caller
from tests.support.api import Answer
from tests.support.services.auth import PASSWORD, Auth

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
    assert [list(user) for user in answer.body] == [["username", "created_at", "role", "login", "break_glass"]] * 2
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


async def test_another_tenant_may_have_the_same_username(auth: Auth, caller: Caller) -> None:
    other = await auth.tenant("somebody")

    await auth.add_user(other, "ada", NEW)

    assert (await auth.login(caller, "ada", NEW)).status == 401
    assert await names(auth, other) == ["ada", "somebody"]


@pytest.mark.parametrize("username", ["", "a b", "a/b", "a\\b", "é", "a:b", "a\0", "$ne", "a" * 129, "a\n", ".", ".."])
async def test_a_username_has_allowed_characters_only(auth: Auth, caller: Caller, username: str) -> None:
    answer = await auth.call(caller, "POST", "add_user", data={"username": username, "password": NEW})

    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, "username")


@pytest.mark.parametrize("username", ["a", "a" * 128, "A.b_c-d+e@f.g", "0", "...", "+"])
async def test_any_other_username_signs_in_and_can_be_deleted(auth: Auth, caller: Caller, username: str) -> None:
    await auth.add_user(caller, username)

    assert (await auth.login(caller, username)).status == 200
    assert (await auth.call(caller, "DELETE", "delete_user", username)).status == 200


@pytest.mark.parametrize("password", ["", "a" * 11, "é" * 11, "a" * 1025, "a" * 12 + "\0", "a" * 12 + "\u202e"])
async def test_a_password_has_a_minimum_and_a_maximum_length(auth: Auth, caller: Caller, password: str) -> None:
    answer = await auth.call(caller, "POST", "add_user", data={"username": "bob", "password": password})

    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, "password")
    assert "bob" not in await names(auth, caller)


@pytest.mark.parametrize("password", ["a" * 12, "é" * 12, "p w" * 341, " " * 12, '{"$ne": ""}..'])
async def test_any_text_of_twelve_characters_may_be_a_password(auth: Auth, caller: Caller, password: str) -> None:
    await auth.add_user(caller, "bob", password)

    assert (await auth.login(caller, "bob", password)).status == 200


async def test_a_refused_password_is_not_repeated_in_the_answer(auth: Auth, caller: Caller) -> None:
    answer = await auth.call(caller, "POST", "add_user", data={"username": "bob", "password": "short one"})

    assert "short one" not in str(answer.body)


async def test_a_deleted_user_is_gone(auth: Auth, caller: Caller) -> None:
    answer = await auth.call(caller, "DELETE", "delete_user", "ada")

    assert (answer.status, answer.body) == (200, {"Message": "User was deleted successfully!"})
    assert await names(auth, caller) == ["admin"]
    assert (await auth.login(caller, "ada")).status == 401


async def test_a_deleted_users_sessions_end(auth: Auth, caller: Caller) -> None:
    tokens = [await auth.token(caller, "ada") for _ in range(2)]

    await auth.call(caller, "DELETE", "delete_user", "ada")

    assert [await auth.session(caller, token) for token in tokens] == [None, None]


async def test_a_user_added_again_has_no_earlier_session(auth: Auth, caller: Caller) -> None:
    token = await auth.token(caller, "ada")
    await auth.call(caller, "DELETE", "delete_user", "ada")

    await auth.add_user(caller, "ada")

    assert await auth.session(caller, token) is None


async def test_an_unknown_user_cannot_be_deleted(auth: Auth, caller: Caller) -> None:
    for unknown in ("nobody", "{}"):
        answer = await auth.call(caller, "DELETE", "delete_user", unknown)
        assert (answer.status, answer.body["code"]) == (404, "user_not_found")


async def test_a_user_of_another_tenant_cannot_be_deleted(auth: Auth, caller: Caller) -> None:
    other = await auth.tenant("admin", "bob")

    assert (await auth.call(caller, "DELETE", "delete_user", "bob")).status == 404
    assert await names(auth, other) == ["admin", "bob"]


async def test_the_last_user_cannot_be_deleted(auth: Auth) -> None:
    caller = await auth.tenant()
    token = await auth.token(caller)

    answer = await auth.call(caller, "DELETE", "delete_user", "admin")

    assert (answer.status, answer.body["code"]) == (409, "last_user")
    assert await auth.session(caller, token)
    assert (await auth.login(caller)).status == 200


async def test_an_unknown_user_is_unknown_in_a_tenant_with_one_user_too(auth: Auth) -> None:
    caller = await auth.tenant()

    assert (await auth.call(caller, "DELETE", "delete_user", "nobody")).status == 404


async def test_two_users_deleting_each_other_leave_one(auth: Auth) -> None:
    for _ in range(10):
        caller = await auth.tenant("admin", "ada")
        answers = await asyncio.gather(
            auth.api.call(caller, "DELETE", "delete_user", "admin"),
            auth.replica.call(caller, "DELETE", "delete_user", "ada"),
        )
        assert sorted(answer.status for answer in answers) == [200, 409]
        assert len(await names(auth, caller)) == 1


async def test_a_user_deleted_twice_at_once_is_deleted_once(auth: Auth, caller: Caller) -> None:
    answers = await asyncio.gather(
        *(api.call(caller, "DELETE", "delete_user", "ada") for api in (auth.api, auth.replica))
    )

    assert sorted(answer.status for answer in answers) == [200, 404]


async def test_a_username_added_many_times_at_once_is_added_once(auth: Auth, caller: Caller) -> None:
    form = {"username": "bob", "password": NEW}
    answers = await asyncio.gather(
        *(api.call(caller, "POST", "add_user", data=form) for api in (auth.api, auth.replica) * 5)
    )

    assert sorted(answer.status for answer in answers) == [201] + [409] * 9


async def test_a_changed_password_replaces_the_old_one(auth: Auth, caller: Caller) -> None:
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


async def test_a_password_change_can_be_repeated(auth: Auth, caller: Caller) -> None:
    answers = [await change_password(auth, caller) for _ in range(2)]

    assert [answer.status for answer in answers] == [200, 200]


async def test_a_password_change_requires_the_old_password(auth: Auth, caller: Caller) -> None:
    other = await auth.token(caller)

    answer = await change_password(auth, caller, old="not this password")

    assert (answer.status, answer.body["code"]) == (401, "bad_credentials")
    assert (await auth.login(caller)).status == 200
    assert await auth.session(caller, other)


async def test_attempts_with_a_wrong_old_password_are_limited(auth: Auth, caller: Caller) -> None:
    for _ in range(10):
        await change_password(auth, caller, old="not this password")

    answer = await change_password(auth, caller)

    assert (answer.status, answer.body["code"]) == (429, "too_many_failures")


async def test_a_change_with_a_wrong_old_password_counts_as_one_failure(auth: Auth, caller: Caller) -> None:
    statuses = [
        (await change_password(auth, caller, old="not this password")).status for _ in range(NETWORK_FAILURE_LIMIT + 1)
    ]

    assert statuses == [401] * NETWORK_FAILURE_LIMIT + [429]


async def test_the_new_password_has_at_least_twelve_characters(auth: Auth, caller: Caller) -> None:
    answer = await change_password(auth, caller, new="a" * 11)

    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, "new_password")
    assert (await auth.login(caller)).status == 200


@pytest.mark.parametrize("missing", ["old_password", "new_password"])
async def test_both_passwords_are_required(auth: Auth, caller: Caller, missing: str) -> None:
    form = {name: NEW for name in ("old_password", "new_password") if name != missing}

    answer = await auth.call(caller, "POST", "change_password", data=form)

    assert (answer.status, answer.body["detail"]) == (400, f"{missing}: is required")


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


async def test_only_the_gateway_is_authorized(auth: Auth, caller: Caller) -> None:
    url = f"{auth.api.address}/{caller.tenant_id}/get_users"
    async with auth.api.session.get(url) as answer:
        assert answer.status == 401
        assert (await answer.json(content_type=None))["code"] == "untrusted_caller"
