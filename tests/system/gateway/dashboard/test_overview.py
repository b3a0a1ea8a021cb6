"""The overview: numbers, recent activity, and services that do not answer."""

import re

import pytest

from common.errors import Unavailable
from common.service_client.client import ServiceClient
from tests.support.system.pages import sign_in
from tests.support.system.publishing import add_package, publish
from tests.support.system.services import Api
from tests.support.wait import until


async def overview(api: Api, cookie: dict[str, str]) -> str:
    """The text of the page without tags, and with single spaces."""
    answer = await api.anonymous().call("GET", "dashboard", headers=cookie)
    assert answer.status == 200
    return " ".join(re.sub("<[^>]+>", " ", answer.body.decode().partition("<main")[2]).split())


async def test_the_overview_counts_packages_versions_and_clients(either: Api) -> None:
    await add_package(either, "Acme.Numbers")
    await publish(either, "Acme.Numbers")
    text = await overview(either, await sign_in(either))
    for words in ("Packages", "Versions", "Clients", "Clients seen in 7 days"):
        assert re.search(rf"[0-9]+ {words}", text), words
    assert "Acme.Numbers 1.0" in text


async def test_refused_actions_look_refused_and_sign_ins_are_left_out(tenant: Api) -> None:
    for _ in range(2):
        await tenant.call("POST", "add_client", data={"client_name": "pc-overview"})
    cookie = await sign_in(tenant)

    async def is_listed() -> bool:
        return "Add client pc-overview refused" in await overview(tenant, cookie)

    await until(is_listed)
    text = await overview(tenant, cookie)
    activity = text.partition("Recent activity")[2].partition("Full audit log")[0]
    assert activity.count("Add client pc-overview") == 2
    assert activity.count("refused") == 1
    assert "login" not in activity


async def test_without_other_services_the_overview_says_which(tenant: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    cookie = await sign_in(tenant)
    await overview(tenant, cookie)  # The gateway knows the roles of the user now.

    async def unavailable(*_: object, **__: object) -> None:
        raise Unavailable("It does not answer.")

    monkeypatch.setattr(ServiceClient, "json", unavailable)
    monkeypatch.setattr(ServiceClient, "readiness", unavailable)
    text = await overview(tenant, cookie)
    assert "Installers and storage : Unavailable" in text.replace("storage:", "storage :")
