"""The pages about releases and retention: what each cell says, and a user's buttons."""

import re
from typing import Any

import pytest

from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from common.service_client.client import ServiceClient
from tests.support.releases import AT, make_gate, make_release
from tests.support.samples.openapi import DOCUMENT
from tests.support.system.pages import SCRIPT, load_page, load_text, text_of
from tests.support.system.publishing import add_package, package_id, publish
from tests.support.system.releases import replace_answers, replace_releases, set_policy
from tests.support.system.services import Api


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The answer of `find_releases`."""
    rows: list[dict[str, Any]] = []
    replace_releases(monkeypatch, rows)
    return rows


async def test_a_row_says_what_each_ring_waits_for(tenant: Api, releases: list[dict[str, Any]]) -> None:
    releases.append(make_release(gates=(make_gate("approval", "waiting", "approvals", count="0", needed="2"),)))
    text = await load_text(tenant, "releases")
    assert "Acme.Anvil 2.0 x64" in text
    assert "pilot offered broad not offered 0 of 2 approved" in text
    assert "Promote to broad" not in text


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
    assert "<script>alert" not in await load_page(tenant, "releases")
    assert "<script>alert" not in await load_page(tenant)


async def test_the_navigation_counts_the_versions_in_flight(tenant: Api, releases: list[dict[str, Any]]) -> None:
    assert 'class="icon-releases"' not in await load_page(tenant, "account")
    releases.extend([make_release(), make_release()])
    assert re.search(r'class="icon-releases">Releases <span class="count">2', await load_page(tenant, "account"))


async def test_the_overview_says_what_waits_for_the_user(tenant: Api, releases: list[dict[str, Any]]) -> None:
    releases.extend(make_release(gates=(make_gate("approval"),)) for _ in range(2))
    releases.append(make_release(status="held"))
    assert "held 1 version is held Waits for you 2 versions wait for your approval" in await load_text(tenant)
    german = await load_text(tenant, language="de")
    assert "1 Version ist gesperrt Wartet auf Sie 2 Versionen warten auf Ihre Genehmigung" in german


async def test_the_overview_does_without_the_time_of_a_publication(tenant: Api, releases: list[dict[str, Any]]) -> None:
    scan = make_gate("scan", "waiting", "scan_pending")
    releases.append(make_release(gates=(scan,), published_at=None))
    assert "1 version waits for a scan, published" in await load_text(tenant)
    releases.append(make_release(gates=(scan,)))
    assert "2 versions wait for a scan, the first published" in await load_text(tenant)


async def test_a_version_of_a_package_that_is_off_is_not_in_winget(tenant: Api) -> None:
    package = package_id()
    await add_package(tenant, package)
    uid = (await publish(tenant, package, "1.0")).uid
    assert "In winget" in await load_text(tenant, "packages", package, "versions", uid)
    answer = await tenant.call("PATCH", "set_package_active", package, data={"package_active": "0"})
    assert answer.status == 200
    text = await load_text(tenant, "packages", package, "versions", uid)
    assert ("Not in winget" in text, "winget install" in text) == (True, False)


async def test_without_versions_the_page_tells_how_to_set_rings(tenant: Api, releases: list[dict[str, Any]]) -> None:
    text = await load_text(tenant, "releases")
    assert "No version is in flight." in text
    assert "Add rings in the release settings" in text


async def test_the_page_of_a_version_shows_its_rings_verdicts_and_history(tenant: Api) -> None:
    package = package_id()
    await add_package(tenant, package)
    await set_policy(tenant, "pilot,everyone", {"everyone": {"approvals": 1}})
    uid = (await publish(tenant, package, "1.0")).uid
    assert (await tenant.call("POST", "hold_version", uid, data={"reason": SCRIPT})).status == 200
    page = await load_page(tenant, "packages", package, "versions", uid)
    text = text_of(page)
    assert "<script>alert" not in page
    for words in (
        "Version 1.0 Scan: not checked",
        "Not in winget pilot (0 machines) not offered everyone (0 machines) not offered held",
        "Scan not checked",
        "Pinned No",
        "pilot withdrawn",
    ):
        assert words in text
    assert "winget install" not in text
    assert "Download" not in text
    assert "Download 1.0" not in await load_page(tenant, "packages", package)
    assert re.search("Held . admin", text)
    assert re.search("Ring entered pilot .", text)


async def test_the_list_of_versions_shows_the_stage_of_each(tenant: Api) -> None:
    package = package_id()
    await add_package(tenant, package)
    await publish(tenant, package, "1.0")
    await set_policy(tenant, "pilot,everyone")
    await publish(tenant, package, "2.0")
    text = await load_text(tenant, "packages", package)
    newer, _, older = text.partition("1.0")
    assert "pilot offered everyone not offered" in newer
    assert "pilot offered everyone offered" in older


async def test_the_list_of_versions_asks_for_the_stages_of_its_own_rows(
    tenant: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package may have more versions than one answer of `find_releases`."""
    monkeypatch.setattr("gateway.dashboard.pages.releases.MAX_RELEASES", 1)
    monkeypatch.setattr("gateway.dashboard.page_request.PAGE_SIZE", 1)
    package = package_id()
    await add_package(tenant, package)
    await set_policy(tenant, "pilot,everyone")
    old = await publish(tenant, package, "1.0")
    await publish(tenant, package, "2.0")
    assert (await tenant.call("POST", "hold_version", old.uid, data={"reason": "It fails."})).status == 200
    assert "1.0 held" in await load_text(tenant, "packages", package, page="2")


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
    text = await load_text(tenant, "packages", package, "versions", uid)
    assert "Version 1.0" in text
    assert "Signature" not in text


async def test_the_page_of_retention_shows_the_next_step_and_the_reason(
    tenant: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Nothing is due:" in await load_text(tenant, "retention")
    success = DOCUMENT["paths"]["/preview_retention"]["get"]["responses"]["200"]["content"]["application/json"]
    (version,) = success["example"]["versions"]
    preview = {**success["example"], "retired": [{**version, "deleted_at": AT}], "retired_total": 1}
    replace_answers(monkeypatch, preview_retention=lambda: preview)
    text = await load_text(tenant, "retention")
    for words in (
        "The next run hides 1 version (59 MiB). 1 version is hidden already.",
        "It is hidden Newer versions of its channel",
        "It is deleted after Nov 20, 2026",
    ):
        assert words in text
    assert "Neuere Versionen ihres Kanals" in await load_text(tenant, "retention", language="de")
