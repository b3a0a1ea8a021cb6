"""The page of rings, gates and retention as fields; a change of what machines get shows its effect first."""

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Open
from tests.support.browser.accessibility import severe_findings
from tests.support.browser.administrators import Visitor, start_session
from tests.support.system.publishing import add_package, package_id, publish
from tests.support.system.releases import set_policy
from tests.support.system.services import Services

pytestmark = pytest.mark.full


@pytest.fixture
async def visitor(open_page: Open, services: Services) -> Visitor:
    """An administrator of a tenant with two rings and one version, which is in the first."""
    tenant = await services.tenant()
    await set_policy(tenant, "pilot,everyone")
    await add_package(tenant, name := package_id())
    await publish(tenant, name, "1.0")
    return await start_session(await open_page(), tenant)


async def test_removing_the_rings_asks_for_the_number_of_versions_that_more_machines_get(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/release_settings")
    for _ in range(2):
        await page.get_by_role("button", name="Remove ring").first.click()
    await page.get_by_role("button", name="Save").click()
    dialog = page.get_by_role("dialog", name="Change what machines get?")
    await expect(dialog).to_contain_text("Versions offered to more machines: 1")
    await expect(dialog).to_contain_text("1.0 → everyone")
    save = dialog.get_by_role("button", name="Save")
    await expect(save).to_be_disabled()
    await dialog.get_by_label("Type 1 to confirm").fill("1")
    await save.click()
    await expect(page.get_by_text("Settings saved.")).to_be_visible()
    assert (await visitor.api.call("GET", "server_information")).body["settings"]["rings"] == []


async def test_a_save_that_changes_no_machine_asks_nothing(visitor: Visitor) -> None:
    await visitor.go("/release_settings")
    await visitor.page.get_by_label("Approvals").last.fill("1")
    await visitor.page.get_by_role("button", name="Save").click()
    await expect(visitor.page.get_by_text("Settings saved.")).to_be_visible()


async def test_a_promotion_shows_what_each_ring_gets_first(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/releases")
    await page.get_by_role("button", name="Promote to everyone").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("listitem")).to_have_text(
        ["pilot (machines: 0) gets 1.0", "everyone (machines: 0) gets 1.0"]
    )
    await dialog.get_by_role("button", name="Promote").click()
    await expect(page.get_by_text("Version promoted.")).to_be_visible()


async def test_rings_rules_and_retention_are_set_as_fields(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/release_settings")
    await page.get_by_role("button", name="Add ring").click()
    added = page.get_by_role("listitem").filter(has=page.get_by_label("Name of the ring")).last
    await added.get_by_label("Name of the ring").fill("broad")
    await added.get_by_label("Clean malware scan").check()
    await added.get_by_label("Approvals").fill("2")
    await added.get_by_label("Days in the ring before").fill("7")
    await added.get_by_role("button", name="Add signature").click()
    await added.get_by_label("Packages").fill("Acme.*")
    await added.get_by_label("Subject of the certificate").fill("CN=Acme")
    await added.get_by_role("button", name="Earlier").click()
    rules = page.locator("[data-rows=ring_rules]")
    await rules.get_by_role("button", name="Add rule").click()
    await rules.get_by_label("Network").fill("10.1.0.0/16")
    await rules.get_by_label("Ring", exact=True).fill("pilot")
    retention = page.locator("[data-rows=retention]")
    await retention.get_by_role("button", name="Add rule").click()
    await retention.get_by_label("Newest versions").fill("3")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Settings saved.")).to_be_visible()
    settings = (await visitor.api.call("GET", "server_information")).body["settings"]
    assert settings["rings"] == ["pilot", "broad", "everyone"]
    signature = [{"packages": "Acme.*", "publisher": "CN=Acme"}]
    assert settings["gates"] == {"broad": {"scan": True, "approvals": 2, "age_days": 7, "signature": signature}}
    assert settings["ring_rules"] == [{"network": "10.1.0.0/16", "ring": "pilot"}]
    assert settings["retention"] == [{"keep_versions": 3}]
    await page.reload()
    await expect(page.get_by_label("Name of the ring").nth(1)).to_have_value("broad")
    await expect(page.get_by_label("Subject of the certificate")).to_have_value("CN=Acme")


async def test_a_ring_is_dragged_to_another_place(visitor: Visitor) -> None:
    page, names = visitor.page, visitor.page.get_by_label("Name of the ring")
    await set_policy(visitor.api, "pilot,broad,test,everyone")
    await visitor.go("/release_settings")
    await page.locator("[data-grip]").nth(1).drag_to(names.nth(2))
    await expect(names.nth(1)).to_have_value("test")
    await expect(names.nth(2)).to_have_value("broad")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Settings saved.")).to_be_visible()
    settings = (await visitor.api.call("GET", "server_information")).body["settings"]
    assert settings["rings"] == ["pilot", "test", "broad", "everyone"]


async def test_a_save_without_a_change_leaves_the_policy_as_it_is(visitor: Visitor) -> None:
    page = visitor.page
    await set_policy(visitor.api, "", {"everyone": {"signature": "signed"}})
    await visitor.go("/release_settings")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Settings saved.")).to_be_visible()
    settings = (await visitor.api.call("GET", "server_information")).body["settings"]
    assert settings["gates"] == {"everyone": {"signature": "signed"}}


async def test_the_json_is_as_new_as_the_last_save(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/release_settings")
    await page.get_by_label("Approvals").last.fill("2")
    await page.get_by_role("button", name="Save").click()
    await page.get_by_text("Advanced: as JSON").click()
    await expect(page.get_by_label("Gates")).to_have_value('{\n  "everyone": {\n    "approvals": 2\n  }\n}')


async def test_a_rule_without_packages_is_not_saved(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/release_settings")
    retention = page.locator("[data-rows=retention]")
    await retention.get_by_role("button", name="Add rule").click()
    await retention.get_by_label("Newest versions").fill("3")
    await retention.get_by_label("Packages").fill("")
    await page.get_by_role("button", name="Save").click()
    await expect(retention.get_by_label("Packages")).to_be_focused()
    assert (await visitor.api.call("GET", "server_information")).body["settings"]["retention"] == []


async def test_a_long_list_leaves_the_number_to_type_and_what_it_is_in_sight(visitor: Visitor) -> None:
    page, name = visitor.page, package_id()
    await page.set_viewport_size({"width": 390, "height": 800})
    await add_package(visitor.api, name)
    for number in range(20):
        await publish(visitor.api, name, f"2.{number}")
    await visitor.go("/release_settings")
    await page.get_by_role("button", name="Remove ring").first.click()
    await page.get_by_role("button", name="Save").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Type 21 to confirm")).to_be_in_viewport()
    await expect(dialog.get_by_role("heading")).to_be_in_viewport()
    assert await severe_findings(page) == []


async def test_a_ring_that_a_rule_names_is_not_renamed_without_the_rule(visitor: Visitor) -> None:
    page = visitor.page
    rules = '[{"network": "10.1.0.0/16", "ring": "pilot"}]'
    assert (await visitor.api.call("PATCH", "edit_settings", data={"ring_rules": rules})).status == 200
    await visitor.go("/release_settings")
    await page.get_by_label("Name of the ring").first.fill("canary")
    await page.get_by_role("button", name="Save").click()
    await expect(
        page.locator("[data-problem]").filter(has_text="must be one of the rings: canary, everyone")
    ).to_be_visible()
    await page.locator("[data-rows=ring_rules]").get_by_label("Ring", exact=True).fill("canary")
    await page.get_by_role("button", name="Save").click()
    await visitor.confirm("1", "Save")
    await expect(page.get_by_text("Settings saved.")).to_be_visible()
    settings = (await visitor.api.call("GET", "server_information")).body["settings"]
    assert (settings["rings"], settings["ring_rules"][0]["ring"]) == (["canary", "everyone"], "canary")


async def test_a_double_click_asks_once_and_a_key_cancels(visitor: Visitor) -> None:
    page, sent = visitor.page, list[str]()
    page.on("request", lambda request: sent.append(request.post_data or "") if request.method == "PATCH" else None)
    await visitor.go()
    await page.get_by_role("link", name="Release settings").click()
    await page.get_by_role("button", name="Remove ring").first.click()
    save = page.get_by_role("button", name="Save")
    await save.evaluate("button => (button.focus(), button.click(), button.click())")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await expect(save).to_be_focused()
    assert sent == ["rings=everyone&gates=%7B%22everyone%22%3A%7B%7D%7D&ring_rules=&preview=true"]
