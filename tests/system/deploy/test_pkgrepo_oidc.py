"""`pkgrepo tenant oidc`, and break-glass users."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.cluster.rights import OPERATOR
from tests.support.factories import KEY
from tests.support.processes.pkgrepo_command import pkgrepo_commands
from tests.support.servers.users import as_user
from tests.support.services.identity_provider import CLIENT_SECRET, IdentityProvider, identity_provider
from tests.support.system.services import PASSWORD, Api, Services


@dataclass(frozen=True)
class Operator:
    """Runs commands for one tenant; `options` are those of `tenant oidc set`."""

    tenant: Api
    idp: IdentityProvider
    options: tuple[str, ...]
    environment: dict[str, str]

    async def run(self, *commands: Sequence[str]) -> list[tuple[int, str]]:
        return await pkgrepo_commands(*commands, **self.environment)

    def set(self, *options: str) -> Sequence[str]:
        return ("tenant", "oidc", "set", self.tenant.tenant_id, *self.options, *options)

    async def login(self, username: str) -> int:
        form = {"username": username, "password": PASSWORD}
        return (await self.tenant.anonymous().call("POST", "login", data=form)).status


@pytest.fixture
async def operator(tenant: Api, tmp_path: Path, mongo_url: str, redis_url: str) -> AsyncIterator[Operator]:
    async with identity_provider(tmp_path) as idp:
        secret, ca = tmp_path / "secret", tmp_path / "ca.pem"
        secret.write_text(f"{CLIENT_SECRET}\n")
        ca.write_text(idp.certificate)
        registration = ("--issuer", idp.issuer, "--client-id", "pkgrepo", "--client-secret-file", str(secret))
        options = (*registration, "--ca-file", str(ca), "--roles-claim", "groups", "--map", "a=b=administrator")
        environment = {
            "MONGO_URL": as_user(mongo_url, OPERATOR),
            "REDIS_URL": as_user(redis_url, OPERATOR),
            "AUDIT_KEY": KEY,
        }
        yield Operator(tenant, idp, options, environment)


async def test_the_operator_sets_shows_and_removes_the_company_login(operator: Operator) -> None:
    name, private = operator.tenant.tenant_id, ("--allow-network", "127.0.0.0/8")
    results = await operator.run(
        operator.set(*private, "--name", "Acme ID"),
        ("tenant", "oidc", "show", name),
        ("tenant", "oidc", "remove", name),
        ("tenant", "oidc", "show", name),
    )
    assert [status for status, _ in results] == [0, 0, 0, 1], results
    assert f"/{name}/sign_in/oidc/callback" in results[0][1]
    for text in (operator.idp.issuer, "name: Acme ID", "map: a=b=administrator", "password_login: true"):
        assert text in results[1][1]
    assert CLIENT_SECRET not in str(results)
    log = (await operator.tenant.call("GET", "get_audit_log")).body
    assert [entry["operation"] for entry in log if entry["operation"].startswith("oidc")] == ["oidc_remove", "oidc_set"]
    assert CLIENT_SECRET not in str(log)


async def test_a_provider_that_cannot_be_used_is_not_set(operator: Operator) -> None:
    private = ("--allow-network", "127.0.0.0/8")
    results = await operator.run(
        operator.set(),
        operator.set(*private, "--issuer", "https://login.microsoftonline.com/common/v2.0"),
        operator.set(*private, "--map", "Admins=root"),
        operator.set(*private, "--no-password-login"),
        ("tenant", "oidc", "show", operator.tenant.tenant_id),
    )
    assert [status != 0 for status, _ in results] == [True] * 5, results
    for text, (_, output) in zip(
        ("its address is private", "every organisation", "is no role", "--break-glass", "no company login"),
        results,
        strict=True,
    ):
        assert text in output


async def test_files_are_text_in_utf_8_with_or_without_a_mark(
    operator: Operator, services: Services, tmp_path: Path
) -> None:
    (tmp_path / "marked").write_text(CLIENT_SECRET, encoding="utf-8-sig")
    (tmp_path / "wide").write_text(CLIENT_SECRET, encoding="utf-16")
    files = [("--client-secret-file", "marked"), ("--client-secret-file", "wide"), ("--ca-file", "wide")]
    commands = [operator.set("--allow-network", "127.0.0.0/8", option, str(tmp_path / name)) for option, name in files]
    accepted, *refused = await operator.run(*commands)
    assert accepted[0] == 0, accepted
    assert (await services.operator.providers.find(operator.tenant.tenant_id)).client_secret == CLIENT_SECRET
    for (status, output), (option, _) in zip(refused, files[1:], strict=True):
        assert status == 2
        assert f"Invalid value for {option}" in output


async def test_break_glass_users_are_the_only_ones_with_a_password(operator: Operator) -> None:
    name = operator.tenant.tenant_id
    form = {"username": "bob", "password": PASSWORD}
    assert (await operator.tenant.call("POST", "add_user", data=form)).status == 201
    results = await operator.run(
        ("user", "edit", name, "admin", "--break-glass"),
        operator.set("--allow-network", "127.0.0.0/8", "--no-password-login"),
        ("user", "list", name),
    )
    assert [status for status, _ in results] == [0, 0, 0], results
    assert "password, break-glass" in results[2][1]
    assert (await operator.login("admin"), await operator.login("bob")) == (200, 401)
    (refused,) = await operator.run(("user", "edit", name, "admin", "--no-break-glass"))
    assert refused[0] == 1
    assert "last administrator" in refused[1]
