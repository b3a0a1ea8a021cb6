"""API tokens at the gateway: looked up once, and checked at every request."""

import time
from ipaddress import ip_address
from typing import Any, cast

import pytest

from common.auth.internal_tokens import Caller, Kind
from common.auth.roles import Role
from common.auth.signing import ApiToken, new_token, new_token_id
from common.errors import NotAuthenticated, Problem, Unavailable, UpstreamProblem
from common.service_client.client import ServiceClient
from common.tenants import Tenant
from gateway.auth.directories import TokenExpired, TokenNetworkNotAllowed, UserDirectory

ADDRESS = "192.0.2.7"


class FakeAuthService:
    """An auth_service with one token."""

    def __init__(self) -> None:
        self.text = new_token(new_token_id())
        self.networks: list[str] = []
        self.expires_at = time.time() + 60
        self.failure: Problem | None = None
        self.lookups: list[dict[str, Any]] = []

    async def json(self, caller: Caller, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        assert operation == "identify_token"
        assert caller.kind is Kind.ANONYMOUS
        self.lookups.append(body)
        if self.failure:
            raise self.failure
        if body != vars(ApiToken.parse(self.text)):
            raise UpstreamProblem("There is no token with this id.", status=404, code="token_not_found")
        rights = {"role": ["publisher"], "package_ids": ["Acme.*"], "networks": self.networks, "created_by": "ada"}
        return {"name": "ci", **rights, "expires_at": self.expires_at}


class DirectoryFixture:
    def __init__(self) -> None:
        self.auth_service = FakeAuthService()
        self.directory = UserDirectory(cast("ServiceClient", self.auth_service))

    async def identify(self, text: str = "", version: str | None = "v1", *, ip: str = ADDRESS) -> Caller:
        return await self.directory.by_token(Caller(Tenant("acme"), ip=ip), text or self.auth_service.text, version)

    @property
    def lookups(self) -> int:
        return len(self.auth_service.lookups)


@pytest.fixture
def fixture() -> DirectoryFixture:
    return DirectoryFixture()


async def test_a_token_is_a_caller_with_its_rights(fixture: DirectoryFixture) -> None:
    caller = await fixture.identify()
    assert (caller.username, caller.creator, caller.session_id) == ("token:ci", "ada", "")
    assert (caller.roles, caller.packages) == ((Role.PUBLISHER,), ("Acme.*",))


async def test_a_token_is_looked_up_once_for_each_tenant_version(fixture: DirectoryFixture) -> None:
    for version, lookups in (("v1", 1), ("v1", 1), ("v2", 2), ("v2", 2)):
        await fixture.identify(version=version)
        assert fixture.lookups == lookups


async def test_a_mistyped_token_is_not_looked_up(fixture: DirectoryFixture) -> None:
    text = fixture.auth_service.text
    for wrong in (text[:-1], text + "0", text[:-1] + ("0" if text[-1] != "0" else "1"), text.swapcase(), "pkgr_"):
        with pytest.raises(NotAuthenticated):
            await fixture.identify(wrong)
    assert fixture.lookups == 0


async def test_auth_service_gets_no_secret(fixture: DirectoryFixture) -> None:
    await fixture.identify()
    assert fixture.auth_service.text.split("_")[2][:43] not in str(fixture.auth_service.lookups)


async def test_an_unknown_token_is_refused(fixture: DirectoryFixture) -> None:
    with pytest.raises(NotAuthenticated) as error:
        await fixture.identify(new_token(new_token_id()))
    assert error.value.code == "not_authenticated"


async def test_a_token_expires_while_it_is_cached(fixture: DirectoryFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    await fixture.identify()
    monkeypatch.setattr(time, "time", lambda: fixture.auth_service.expires_at)
    with pytest.raises(TokenExpired) as error:
        await fixture.identify()
    assert (error.value.status, error.value.code, fixture.lookups) == (401, "token_expired", 1)


@pytest.mark.parametrize("network", ["192.0.2.0/24", "192.0.2.7", "192.0.2.1-192.0.2.9"])
async def test_a_token_counts_in_its_networks_only(fixture: DirectoryFixture, network: str) -> None:
    fixture.auth_service.networks = [network]
    assert (await fixture.identify()).address == ip_address(ADDRESS)
    for other in ("198.51.100.7", "2001:db8::1"):
        with pytest.raises(TokenNetworkNotAllowed) as error:
            await fixture.identify(ip=other)
        assert (error.value.status, error.value.code) == (403, "network_not_allowed")
    assert fixture.lookups == 1


async def test_without_auth_service_only_known_tokens_go_on(fixture: DirectoryFixture) -> None:
    await fixture.identify()
    fixture.auth_service.failure = Unavailable("away")
    await fixture.identify()
    with pytest.raises(Unavailable):
        await fixture.identify(version="v2")
    fixture.auth_service.failure = UpstreamProblem("no", status=500, code="internal_error")
    with pytest.raises(UpstreamProblem):
        await fixture.identify(version="v3")
