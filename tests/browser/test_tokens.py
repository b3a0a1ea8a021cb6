"""The page of the API tokens."""

import pytest
from playwright.async_api import Locator, expect

from tests.support.browser.administrators import Visitor

pytestmark = pytest.mark.full
NAME = "build server"


def issued(visitor: Visitor) -> Locator:
    return visitor.page.get_by_role("region", name=f"Token of {NAME}").locator("code").first


async def add(visitor: Visitor) -> str:
    """Add a token through the form. Returns its text."""
    page = visitor.page
    await visitor.go("/tokens")
    await page.get_by_label("Name").fill(NAME)
    await page.get_by_label("Package ids").fill("Acme.*")
    await page.locator("form").get_by_role("button", name="Add API token").click()
    await expect(issued(visitor)).not_to_be_empty()
    return await issued(visitor).inner_text()


async def status_for(visitor: Visitor, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return (await visitor.api.anonymous().call("GET", "test", headers=headers)).status


async def test_the_secret_of_a_new_token_is_shown_once(visitor: Visitor) -> None:
    token, page = await add(visitor), visitor.page
    await expect(page.get_by_role("row", name=NAME)).to_contain_text("Acme.*")
    assert await status_for(visitor, token) == 200
    assert token not in page.url
    await page.get_by_role("link", name="Users", exact=True).click()
    await expect(page.get_by_role("heading", level=1, name="Users")).to_be_visible()
    await expect(page.get_by_text(f"API tokens: {NAME}")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("row", name=NAME)).to_be_visible()
    storage = await page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, history.state])")
    assert token not in await page.content() + storage + page.url


async def test_a_rotated_token_is_shown_and_the_old_one_ends(visitor: Visitor) -> None:
    old, page = await add(visitor), visitor.page
    await page.reload()
    row = page.get_by_role("row", name=NAME)
    await row.locator("summary").click()
    await row.get_by_role("button", name="Rotate").click()
    await expect(issued(visitor)).not_to_be_empty()
    new = await issued(visitor).inner_text()
    assert [await status_for(visitor, token) for token in (old, new)] == [401, 200]


async def test_a_deleted_token_ends(visitor: Visitor) -> None:
    token, page = await add(visitor), visitor.page
    await page.get_by_role("button", name=f"Delete {NAME}").click()
    await visitor.confirm(NAME)
    await expect(page.get_by_text("No API tokens yet.")).to_be_visible()
    assert await status_for(visitor, token) == 401


async def test_a_problem_of_a_new_token_is_shown_beside_its_field(visitor: Visitor) -> None:
    page = visitor.page
    await add(visitor)
    await page.reload()
    await page.locator("summary", has_text="Add API token").click()
    await page.get_by_label("Name").fill(NAME)
    submit = page.locator("form").get_by_role("button", name="Add API token")
    await submit.click()
    await expect(page.get_by_text("A token with this name already exists.")).to_be_visible()
    await page.get_by_label("Name").fill("other")
    await page.get_by_label("Networks").fill("localhost")
    await submit.click()
    await expect(page.get_by_text("'localhost' is not an IP address")).to_be_visible()
