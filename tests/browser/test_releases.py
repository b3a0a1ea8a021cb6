"""The page of the releases in a browser: every state is accessible, and stops are confirmed with a reason."""

from typing import Any
from urllib.parse import parse_qs

import pytest
from playwright.async_api import Page, Route, expect

from gateway.dashboard.pages.releases import PAGE_SIZE
from tests.browser.conftest import Open
from tests.browser.test_pages import MAX_FIRST_VISIT, NARROW, WIDE
from tests.support.browser.accessibility import CONTRAST, layout_findings, severe_findings
from tests.support.browser.administrators import Visitor, start_session
from tests.support.browser.pages import record_transfers
from tests.support.releases import make_gate, make_release
from tests.support.system.releases import replace_releases
from tests.support.system.services import Api

pytestmark = pytest.mark.full
RINGS = ("pilot", "broad", "everyone")
GATES = (
    make_gate("approval", "waiting", "approvals", count="1", needed="2", by=("eve",)),
    make_gate("age", "waiting", "days_in_ring", ring="pilot", days="7", until="2026-11-30T12:00:00+00:00"),
    make_gate("scan", "failed", "scan_infected", "cause", cause="Eicar-Test-Signature"),
    make_gate("signature", "passed", "signed_by", signer="CN=Acme GmbH, O=Acme, C=DE"),
)


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The answer of `find_releases`: a version in each state."""
    rows = [make_release(rings=RINGS, gates=GATES), make_release(rings=RINGS, entered=0, gates=GATES)]
    rows += [make_release(rings=RINGS, status=s, reason="It fails.") for s in ("paused", "held", "rolled_back")]
    replace_releases(monkeypatch, rows)
    return rows


async def test_every_state_is_accessible_in_both_colours_and_on_a_phone(
    open_page: Open, tenant: Api, releases: list[dict[str, Any]]
) -> None:
    visitor = await start_session(await open_page(locale="de", viewport=WIDE), tenant)
    page = visitor.page
    await visitor.go("/releases")
    await expect(page.locator("tbody tr")).to_have_count(len(releases))
    findings = await severe_findings(page)
    await page.set_viewport_size(NARROW)  # type: ignore[arg-type]
    findings += [*await severe_findings(page, CONTRAST), *await layout_findings(page)]
    await page.emulate_media(color_scheme="dark")
    assert findings + await severe_findings(page) == []


async def test_a_full_page_is_small_at_the_first_visit(visitor: Visitor, releases: list[dict[str, Any]]) -> None:
    releases[:] = [make_release(rings=RINGS, gates=GATES[:2]) for _ in range(PAGE_SIZE)]
    transfers = await record_transfers(visitor.page)
    await visitor.go("/releases")
    assert 0 < sum(transfers) <= MAX_FIRST_VISIT


async def answer_previews(page: Page, status: int = 200, **answer: object) -> None:
    """Answer the question what a step would do, because catalog_service does not have these versions."""

    async def handle(route: Route) -> None:
        if "preview=true" in (route.request.post_data or ""):
            await route.fulfill(status=status, json=answer)
        else:
            await route.fallback()

    await page.route("**/operations/*_version/*", handle)


async def choose(page: Page, action: str, row: int = 0) -> None:
    """Choose an action of the version in a row."""
    await page.get_by_role("button", name="Actions for Acme.Anvil 2.0").nth(row).click()
    await page.get_by_role("button", name=action, exact=True).first.click()


async def test_a_hold_is_confirmed_with_a_reason(visitor: Visitor, releases: list[dict[str, Any]]) -> None:
    page = visitor.page
    await answer_previews(page, offered={"pilot": "1.0", "everyone": ""})
    await visitor.go("/releases")
    await choose(page, "Hold")
    confirm = page.get_by_role("dialog").get_by_role("button", name="Hold")
    await expect(page.get_by_label("Reason")).to_be_focused()
    await expect(confirm).to_be_disabled()
    await page.keyboard.type("It deletes documents & more.")
    await expect(page.get_by_role("dialog").get_by_role("listitem")).to_have_text(
        ["pilot gets 1.0", "everyone gets no version"]
    )
    async with page.expect_request("**/hold_version/*") as request:
        await confirm.click()
    sent = await request.value
    assert sent.url.endswith(f"/{releases[0]['uid']}")
    assert parse_qs(sent.post_data or "") == {"reason": ["It deletes documents & more."]}


async def test_a_cancelled_roll_back_sends_nothing(visitor: Visitor, releases: list[dict[str, Any]]) -> None:
    page, sent = visitor.page, list[str]()
    await answer_previews(page, offered={})
    await visitor.go("/releases")
    await choose(page, "Roll back", 2)
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("machines that already installed it are not changed")
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    await expect(dialog.get_by_role("button", name="Roll back")).to_be_enabled()
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(dialog).to_be_hidden()
    assert sent == []


@pytest.mark.parametrize(
    ("status", "place"),
    [(503, "dialog"), (409, "[data-problem]")],
    ids=["the effect cannot be told", "the step is refused"],
)
async def test_a_step_whose_effect_is_not_known_is_never_taken_unasked(
    visitor: Visitor, releases: list[dict[str, Any]], status: int, place: str
) -> None:
    page, sent = visitor.page, list[str]()
    await answer_previews(page, status, detail="The catalog is busy.", code="busy")
    page.on("request", lambda request: sent.append(request.post_data or "") if request.method == "POST" else None)
    await visitor.go("/releases")
    await choose(page, "Hold")
    await expect(page.locator(place).filter(has_text="The catalog is busy.")).to_be_visible()
    assert sent == ["preview=true&reason=-"]
