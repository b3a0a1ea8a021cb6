"""The record of a version is changed on its page, and nobody's change is lost."""

import pytest
from playwright.async_api import Page, expect

from tests.support.browser.administrators import Visitor
from tests.support.system.publishing import add_package, publish

pytestmark = pytest.mark.full


@pytest.fixture
async def editor(visitor: Visitor) -> Page:
    """The page of version 2.0 with its open form; version 1.0 has a silent switch."""
    await add_package(visitor.api, "Acme.Anvil")
    await publish(visitor.api, "Acme.Anvil", "1.0", file_type="exe", switch_Silent="/S")
    published = await publish(visitor.api, "Acme.Anvil", "2.0", file_type="exe")
    await visitor.go(f"/packages/Acme.Anvil/versions/{published.uid}")
    await visitor.page.get_by_role("button", name="Edit version").click()
    return visitor.page


async def test_a_version_gets_the_switches_of_another_one(visitor: Visitor, editor: Page) -> None:
    await editor.get_by_label("Copy switches").select_option(label="1.0 · x64 · stable")
    await editor.get_by_role("button", name="Copy", exact=True).click()
    await expect(editor.get_by_text("Filled in from version 1.0.")).to_be_visible()
    await editor.get_by_label("Release notes", exact=True).fill("Faster.")
    await editor.get_by_role("button", name="Save").click()
    await expect(editor.get_by_text("Version saved.")).to_be_visible()
    uid = editor.url.partition("?")[0].rpartition("/")[2]
    details = (await visitor.api.call("GET", "get_version_details", uid)).body
    assert (details["switch_Silent"], details["release_notes"]) == ("/S", "Faster.")


async def test_the_second_of_two_editors_is_told_of_the_first(visitor: Visitor, editor: Page) -> None:
    uid = editor.url.rpartition("/")[2]
    form = {"switch_Silent": "/first"}
    assert (await visitor.api.call("PATCH", "edit_package_version", uid, data=form)).status == 200
    await editor.get_by_label("Silent switch", exact=True).fill("/second")
    await editor.get_by_role("button", name="Save").click()
    await expect(editor.get_by_text("Somebody changed this version since you read it.")).to_be_visible()
    await expect(editor.get_by_label("Silent switch", exact=True)).to_have_value("/second")
    assert (await visitor.api.call("GET", "get_version_details", uid)).body["switch_Silent"] == "/first"
