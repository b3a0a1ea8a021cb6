"""Password resets by an administrator, and the last sign-in of users."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from auth_service.users.store import NO_PASSWORD, User
from common.auth.internal_tokens import Caller
from tests.support.api import Answer
from tests.support.services.auth import PASSWORD, Auth
from tests.support.tables import each

NEW = "another password for tests"


@pytest.fixture
async def caller(auth: Auth) -> Caller:
    """`admin`, one of two users of their tenant."""
    return await auth.tenant("admin", "ada")


async def reset(auth: Auth, caller: Caller, username: str = "ada") -> Answer:
    return await auth.call(caller, "POST", "reset_password", username)


async def sign_in(auth: Auth, caller: Caller, password: str, new: str = "", username: str = "ada") -> Answer:
    form = {"username": username, "password": password, **({"new_password": new} if new else {})}
    return await auth.call(caller, "POST", "login", data=form)


async def user(auth: Auth, caller: Caller, username: str = "ada") -> dict[str, Any]:
    users = (await auth.call(caller, "GET", "get_users")).body
    found: dict[str, Any] = next(each for each in users if each["username"] == username)
    return found


async def test_a_reset_ends_the_old_password_and_all_sessions(auth: Auth, caller: Caller) -> None:
    ada = replace(caller, username="ada")
    token = await auth.token(ada, "ada")

    answer = await reset(auth, caller)

    assert answer.status == 200
    assert answer.audit_target == {"username": "ada"}
    assert answer.body["password"] not in str(answer.headers)
    assert (await sign_in(auth, caller, PASSWORD)).status == 401
    assert await auth.session(ada, token) is None
    assert (await user(auth, caller))["must_change_password"] is True


async def test_a_temporary_password_opens_no_session_without_a_new_one(auth: Auth, caller: Caller) -> None:
    temporary = (await reset(auth, caller)).body["password"]

    for _ in range(2):
        answer = await sign_in(auth, caller, temporary)
        assert (answer.status, answer.body["code"]) == (403, "password_change_required")
    wrong = await sign_in(auth, caller, f"{temporary}x", NEW)
    assert (wrong.status, wrong.body["code"]) == (401, "bad_credentials")


async def test_the_new_password_replaces_the_temporary_one(auth: Auth, caller: Caller) -> None:
    temporary = (await reset(auth, caller)).body["password"]

    first = await sign_in(auth, caller, temporary, NEW)

    assert first.status == 200
    assert await auth.session(replace(caller, username="ada"), first.body["message"]) is not None
    assert (await sign_in(auth, caller, temporary, "yet another password")).status == 401
    assert (await sign_in(auth, caller, NEW)).status == 200
    assert (await user(auth, caller))["must_change_password"] is False


@each("new", ["short", "the same"])
async def test_a_new_password_is_long_and_not_the_temporary_one(auth: Auth, caller: Caller, new: str) -> None:
    temporary = (await reset(auth, caller)).body["password"]

    answer = await sign_in(auth, caller, temporary, temporary if new == "the same" else new)

    assert (answer.status, answer.body["params"]["field"]) == (400, "new_password")
    assert (await sign_in(auth, caller, temporary)).status == 403


async def test_a_password_that_was_not_reset_stays(auth: Auth, caller: Caller) -> None:
    assert (await sign_in(auth, caller, PASSWORD, NEW)).status == 200
    assert (await sign_in(auth, caller, NEW)).status == 401
    assert (await sign_in(auth, caller, PASSWORD)).status == 200


async def test_nobody_resets_the_own_password_or_that_of_the_company_login(auth: Auth, caller: Caller) -> None:
    now = datetime.now(UTC)
    company = User(caller.tenant_id, "company-1", NO_PASSWORD, now, issuer="https://idp", subject="1", name="Bob")
    await auth.users.sign_in(company)

    own, other = await reset(auth, caller, "admin"), await reset(auth, caller, "company-1")
    unknown = await reset(auth, caller, "nobody")

    assert (own.status, own.body["code"]) == (409, "own_password")
    assert (other.status, other.body["code"]) == (409, "no_password")
    assert (unknown.status, unknown.body["code"]) == (404, "user_not_found")
    assert (await sign_in(auth, caller, PASSWORD, username="admin")).status == 200


async def test_the_audit_log_has_the_sign_ins_after_a_reset(auth: Auth, caller: Caller) -> None:
    temporary = (await reset(auth, caller)).body["password"]
    await sign_in(auth, caller, temporary)
    await sign_in(auth, caller, temporary, NEW)

    entries = (await auth.call(caller, "GET", "get_audit_log")).body

    listed = [(entry["operation"], entry["user"], entry["status"]) for entry in reversed(entries)]
    assert listed[-3:] == [("login", "ada", 403), ("login", "ada", 200), ("change_password", "ada", 200)]


async def test_the_last_sign_in_is_stored_once_a_minute(auth: Auth, caller: Caller) -> None:
    before = (await user(auth, caller))["last_sign_in"]
    await sign_in(auth, caller, "wrong password")
    failed = (await user(auth, caller))["last_sign_in"]
    await sign_in(auth, caller, PASSWORD)
    first = (await user(auth, caller))["last_sign_in"]
    await sign_in(auth, caller, PASSWORD)
    second = (await user(auth, caller))["last_sign_in"]

    assert (before, failed) == (None, None)
    assert abs(datetime.fromisoformat(first) - datetime.now(UTC)) < timedelta(minutes=5)
    assert second == first
