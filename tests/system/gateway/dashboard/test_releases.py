"""The pages about releases: what each cell says, and the buttons that a user gets."""

import re
from typing import Any

import pytest

from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from common.service_client.client import ServiceClient
from tests.support.releases import make_gate, make_release
from tests.support.system.pages import SCRIPT, sign_in
from tests.support.system.publishing import add_package, package_id, publish
from tests.support.system.releases import replace_releases, set_policy
from tests.support.system.services import Api


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The answer of `find_releases`."""
    rows: list[dict[str, Any]] = []
    replace_releases(monkeypatch, rows)
    return rows


async def load(api: Api, *path: str, language: str = "en") -> str:
    headers = {**await sign_in(api), "Accept-Language": language}
    answer = await api.anonymous().call("GET", "dashboard", *path, headers=headers)
    assert answer.status == 200, answer.body
    return str(answer.body.decode())


def text_of(page: str) -> str:
    return " ".join(re.sub("<[^>]+>", " ", page.partition("<main")[2]).split())


async def test_a_row_says_what_each_ring_waits_for(tenant: Api, releases: list[dict[str, Any]]) -> None:
    releases.append(make_release(gates=(make_gate("approval", "waiting", "approvals", count="0", needed="2"),)))
    text = text_of(await load(tenant, "releases"))
    assert "Acme.Anvil 2.0 pilot x64" in text
    assert "offered" in text
    assert "Approval: waits It has 0 of 2 approvals." in text


async def test_the_texts_of_a_release_are_escaped(tenant: Api, releases: list[dict[str, Any]]) -> None:
    gate = make_gate("signature", "failed", "given", text=SCRIPT, by=(SCRIPT,))
    texts: dict[str, Any] = {
        "package_id": SCRIPT,
        "version": SCRIPT,
        "published_by": SCRIPT,
        "reason": SCRIPT,
        "channel": SCRIPT,
    }
    releases.append(make_release(gates=(gate,), rings=("pilot", SCRIPT), **texts))
    assert "<script>alert" not in await load(tenant, "releases")
    assert "<script>alert" not in await load(tenant)


async def test_the_navigation_counts_the_versions_in_flight(tenant: Api, releases: list[dict[str, Any]]) -> None:
    assert 'class="icon-releases"' not in await load(tenant, "account")
    releases.extend([make_release(), make_release()])
    assert re.search(r'class="icon-releases">Releases <span class="count">2', await load(tenant, "account"))


async def test_the_overview_says_what_waits_for_the_user(tenant: Api, releases: list[dict[str, Any]]) -> None:
    releases.extend(make_release(gates=(make_gate("approval"),)) for _ in range(2))
    releases.append(make_release(status="held"))
    assert "2 versions wait for your approval 1 version is held" in text_of(await load(tenant))
    assert "2 Versionen warten auf Ihre Genehmigung 1 Version ist gesperrt" in text_of(
        await load(tenant, language="de")
    )


async def test_without_versions_the_page_tells_how_to_set_rings(tenant: Api, releases: list[dict[str, Any]]) -> None:
    text = text_of(await load(tenant, "releases"))
    assert "No version is in flight." in text
    assert "Set rings in the settings" in text


async def test_the_page_of_a_version_shows_its_rings_verdicts_and_history(tenant: Api) -> None:
    package = package_id()
    await add_package(tenant, package)
    await set_policy(tenant, "pilot,everyone", {"everyone": {"approvals": 1}})
    uid = (await publish(tenant, package, "1.0")).uid
    assert (await tenant.call("POST", "hold_version", uid, data={"reason": SCRIPT})).status == 200
    page = await load(tenant, "packages", package, "versions", uid)
    text = text_of(page)
    assert "<script>alert" not in page
    for words in ("Version 1.0 held", "Scan not checked", "Signature not", "Pinned No", "pilot withdrawn"):
        assert words in text
    assert re.search("Held . admin", text)
    assert re.search("Ring entered pilot .", text)


async def test_the_list_of_versions_shows_the_stage_of_each(tenant: Api) -> None:
    package = package_id()
    await add_package(tenant, package)
    await publish(tenant, package, "1.0")
    await set_policy(tenant, "pilot,everyone")
    await publish(tenant, package, "2.0")
    text = text_of(await load(tenant, "packages", package))
    assert "2.0 pilot" in text
    assert "1.0 pilot" not in text


async def test_the_page_of_a_version_does_without_the_verdicts(tenant: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    package = package_id()
    await add_package(tenant, package)
    uid = (await publish(tenant, package, "1.0")).uid
    fetch = ServiceClient.json

    async def answer(self: ServiceClient, caller: Caller, operation: str, *rest: Any, **options: Any) -> Any:
        if operation == "installer_checks":
            raise Unavailable("It does not answer.")
        return await fetch(self, caller, operation, *rest, **options)

    monkeypatch.setattr(ServiceClient, "json", answer)
    text = text_of(await load(tenant, "packages", package, "versions", uid))
    assert "Version 1.0" in text
    assert "Signature" not in text
