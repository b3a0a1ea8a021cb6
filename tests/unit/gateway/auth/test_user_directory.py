"""The roles of a user are those of one version of the tenant."""

from typing import Any, cast

import pytest

from common.auth.internal_tokens import Caller
from common.auth.roles import Role
from common.auth.sessions import Session
from common.errors import NotAuthenticated, Unavailable
from common.service_client.client import ServiceClient
from common.tenants import Tenant
from gateway.auth.directories import UserDirectory

ACME, OTHER = Caller(Tenant("acme")), Caller(Tenant("other"))
ADA, BOB = (Session("acme", name, f"session of {name}", 0) for name in ("ada", "bob"))


class AuthService:
    """An auth_service with these roles by tenant and user. It fails if `is_down`."""

    def __init__(self) -> None:
        self.roles: dict[tuple[str, str], list[str]] = {("acme", "ada"): ["publisher"], ("other", "ada"): ["viewer"]}
        self.is_down = False
        self.call_count = 0

    async def json(self, caller: Caller, operation: str) -> dict[str, Any]:
        assert operation == "find_roles"
        assert caller.roles == ()  # The question itself has no rights.
        self.call_count += 1
        if self.is_down:
            raise Unavailable("auth_service does not answer.")
        return {"roles": self.roles.get((caller.tenant_id, caller.username), [])}


@pytest.fixture
def auth_service() -> AuthService:
    return AuthService()


@pytest.fixture
def users(auth_service: AuthService) -> UserDirectory:
    return UserDirectory(cast("ServiceClient", auth_service))


async def test_a_user_is_fetched_once_for_each_tenant(users: UserDirectory, auth_service: AuthService) -> None:
    for _ in range(2):
        assert await users.by_session(ACME, ADA, "1") == ACME.as_administrator(
            "ada", "session of ada", (Role.PUBLISHER,)
        )
        assert (await users.by_session(OTHER, ADA, "1")).roles == (Role.VIEWER,)
    assert auth_service.call_count == 2


async def test_another_version_of_the_tenant_has_the_new_roles(users: UserDirectory, auth_service: AuthService) -> None:
    await users.by_session(ACME, ADA, "1")
    auth_service.roles["acme", "ada"] = ["viewer"]
    assert (await users.by_session(ACME, ADA, "2")).roles == (Role.VIEWER,)


async def test_roles_are_not_cached_without_a_version(users: UserDirectory, auth_service: AuthService) -> None:
    await users.by_session(ACME, ADA, "1")
    auth_service.roles["acme", "ada"] = ["viewer"]
    assert (await users.by_session(ACME, ADA, None)).roles == (Role.VIEWER,)


async def test_a_deleted_user_is_not_authenticated(users: UserDirectory) -> None:
    with pytest.raises(NotAuthenticated):
        await users.by_session(ACME, BOB, "1")


async def test_cached_users_go_on_while_auth_service_is_down(users: UserDirectory, auth_service: AuthService) -> None:
    await users.by_session(ACME, ADA, "1")
    auth_service.is_down = True
    assert (await users.by_session(ACME, ADA, "1")).roles == (Role.PUBLISHER,)
    for session, version in ((BOB, "1"), (ADA, "2"), (ADA, None)):
        with pytest.raises(Unavailable):
            await users.by_session(ACME, session, version)


@pytest.mark.parametrize("answer", [{}, {"roles": ["root"]}, {"roles": None}])
async def test_an_answer_without_known_roles_gives_no_rights(
    users: UserDirectory, auth_service: AuthService, answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer_so(*_: object) -> dict[str, Any]:
        return answer

    monkeypatch.setattr(auth_service, "json", answer_so)
    with pytest.raises((KeyError, ValueError, TypeError)):
        await users.by_session(ACME, ADA, "1")
