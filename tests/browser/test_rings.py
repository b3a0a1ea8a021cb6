"""The pages of the clients and the settings with rings."""

import json

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Open
from tests.support.browser.administrators import Visitor, start_session
from tests.support.system.releases import set_policy
from tests.support.system.services import Services
from tests.support.wait import until

pytestmark = pytest.mark.full
RINGS = ("pilot", "everyone")


@pytest.fixture
async def visitor(open_page: Open, services: Services) -> Visitor:
    """An administrator of a tenant with rings and one client."""
    tenant = await services.tenant()
    await set_policy(tenant, ",".join(RINGS))
    visitor = await start_session(await open_page(), tenant)
    await visitor.api.call("POST", "add_client", data={"client_name": "pc-1"})
    return visitor


async def test_an_administrator_moves_a_client_to_another_ring(visitor: Visitor) -> None:
    async def has_ring(ring: str) -> bool:
        [client] = (await visitor.api.call("GET", "get_clients")).body
        return bool(client["ring"] == ring)

    ring = visitor.page.get_by_role("combobox", name="Ring of pc-1")
    await visitor.go("/clients")
    await expect(ring.locator("option:checked")).to_have_text("By rule, else everyone")
    for label, expected in (("pilot", "pilot"), ("By rule, else everyone", ""), ("pilot", "pilot")):
        await ring.select_option(label=label)
        await expect(visitor.page.get_by_text("Ring changed.")).to_be_visible()
        await until(lambda expected=expected: has_ring(expected))  # type: ignore[misc]
        await visitor.go("/clients")
        await expect(ring.locator("option:checked")).to_have_text(label)

    await visitor.api.call("PATCH", "edit_settings", data={"rings": "broad,everyone"})
    await visitor.go("/clients")
    await expect(ring.locator("option:checked")).to_have_text("pilot (removed)")


async def test_the_clients_of_a_tenant_without_rings_show_none(visitor: Visitor) -> None:
    await visitor.api.call("PATCH", "edit_settings", data={"rings": ""})
    await visitor.go("/clients")
    await expect(visitor.page.get_by_role("row", name="pc-1")).to_be_visible()
    await expect(visitor.page.get_by_role("combobox")).to_have_count(0)


async def test_an_invalid_ring_rule_is_shown_beside_its_field(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/settings")
    rules = page.get_by_label("Ring rules")
    for text, problem in (
        ("pilot", "must be a list in JSON"),
        ('[{"network": "nowhere", "ring": "pilot"}]', "is not an IP address"),
        ('[{"network": "10.0.0.0/8", "ring": "broad"}]', "must be one of the rings: pilot, everyone"),
    ):
        await rules.fill(text)
        await page.get_by_role("button", name="Save").last.click()
        await expect(page.locator(".field-problem")).to_contain_text(problem)
        assert await rules.get_attribute("aria-invalid") == "true"


async def test_the_settings_page_changes_the_policy_for_releases(visitor: Visitor) -> None:
    page, rules = visitor.page, [{"network": "10.1.0.0/16", "ring": "fast"}]
    policy = {"gates": {"slow": {"approvals": 2}}, "retention": [{"packages": "Acme.*", "keep_versions": 3}]}
    await visitor.go("/settings")
    await expect(page.get_by_label("Rings")).to_have_value("pilot, everyone")
    await page.get_by_label("Rings").fill("fast, slow")
    await page.get_by_label("Ring rules").fill(json.dumps(rules))
    await page.get_by_label("Gates").fill(json.dumps(policy["gates"]))
    await page.get_by_label("Retention rules").fill(json.dumps(policy["retention"], indent=1))
    await page.get_by_role("button", name="Save").last.click()
    await expect(page.get_by_text("Settings saved.")).to_be_visible()

    settings = (await visitor.api.call("GET", "server_information")).body["settings"]
    assert {name: settings[name] for name in policy} == policy
    assert (settings["rings"], settings["ring_rules"]) == (["fast", "slow"], rules)
    await visitor.go("/settings")
    assert json.loads(await page.get_by_label("Gates").input_value()) == policy["gates"]
