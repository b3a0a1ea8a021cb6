"""The page of the clients."""

import pytest
from playwright.async_api import Locator, Route, expect

from tests.browser.conftest import Open
from tests.support.browser.administrators import Visitor, start_session
from tests.support.system.services import Services

pytestmark = pytest.mark.full
NAME = "pc-0042.example.com"


@pytest.fixture
async def enforced(open_page: Open, services: Services) -> Visitor:
    """The administrator of a tenant whose clients identify themselves, on the page of the clients."""
    visitor = await start_session(await open_page(), await services.tenant(client_authentication=True))
    await visitor.go("/clients")
    return visitor


def issued(visitor: Visitor) -> Locator:
    return visitor.page.get_by_role("region", name=f"Token of {NAME}").locator("code").first


async def add(visitor: Visitor) -> str:
    """Add the client through the form. Returns its token."""
    await visitor.page.get_by_label("Host name of the machine").fill(NAME)
    await visitor.page.locator("form").get_by_role("button", name="Add client").click()
    await expect(issued(visitor)).not_to_be_empty()
    return await issued(visitor).inner_text()


async def status_for(visitor: Visitor, token: str) -> int:
    """The status of the catalog for a client with this token."""
    answer = await visitor.api.anonymous().call("POST", "get_packages", data={"auth_token": token})
    return answer.status


async def test_the_token_of_a_new_client_is_shown_once(enforced: Visitor) -> None:
    token = await add(enforced)
    page = enforced.page
    await expect(page.get_by_text(f"--header \"{{'Token': '{token}'}}\"", exact=True)).to_be_visible()
    await expect(page.get_by_role("row", name=NAME)).to_be_visible()
    assert await status_for(enforced, token) == 200
    await page.reload()
    await expect(page.get_by_role("row", name=NAME)).to_be_visible()
    assert token not in await page.content()


async def test_a_duplicate_client_name_is_reported_in_place(enforced: Visitor) -> None:
    await enforced.api.call("POST", "add_client", data={"client_name": NAME})
    await enforced.page.get_by_label("Host name of the machine").fill(NAME)
    await enforced.page.locator("form").get_by_role("button", name="Add client").click()
    await expect(enforced.page.get_by_text("A client with this name already exists.")).to_be_visible()


async def test_a_replaced_token_ends_and_the_new_one_is_shown(enforced: Visitor) -> None:
    before = await add(enforced)
    await enforced.choose(NAME, f"New token for {NAME}")
    await enforced.confirm(NAME, "Replace")
    await expect(issued(enforced)).not_to_have_text(before)
    after = await issued(enforced).inner_text()
    assert [await status_for(enforced, token) for token in (before, after)] == [401, 200]


async def test_a_client_is_disabled_and_enabled_again(enforced: Visitor) -> None:
    token = await add(enforced)
    await enforced.choose(NAME, f"Disable {NAME}")
    await expect(enforced.page.get_by_role("row", name=NAME).get_by_text("Disabled")).to_be_visible()
    assert await status_for(enforced, token) == 401
    await enforced.choose(NAME, f"Enable {NAME}")
    await expect(enforced.page.get_by_role("row", name=NAME).get_by_text("Enabled")).to_be_visible()
    assert await status_for(enforced, token) == 200


async def test_a_client_is_deleted_by_typing_its_name(enforced: Visitor) -> None:
    await enforced.api.call("POST", "add_client", data={"client_name": NAME})
    await enforced.go("/clients")
    await enforced.choose(NAME, f"Delete {NAME}")
    await enforced.confirm(NAME)
    await expect(enforced.page.get_by_text("No clients yet.")).to_be_visible()
    assert (await enforced.api.call("GET", "get_clients")).body == []


async def test_a_deletion_that_fails_halfway_can_be_retried(enforced: Visitor) -> None:
    page = enforced.page
    token = await add(enforced)
    await page.route("**/delete_client/**", lambda route: route.abort(), times=1)
    await enforced.choose(NAME, f"Delete {NAME}")
    await enforced.confirm(NAME)
    alert = page.get_by_role("alert").filter(has_text=f"The token of {NAME} is no longer valid, but")
    await expect(alert).to_contain_text("The repository cannot be reached.")
    assert await status_for(enforced, token) == 401
    await alert.get_by_role("button", name="Try again").click()
    await expect(page.get_by_text("No clients yet.")).to_be_visible()


async def test_a_deletion_with_a_lost_answer_can_be_retried(enforced: Visitor) -> None:
    async def lose(route: Route) -> None:
        await route.fetch()
        await route.abort()

    page = enforced.page
    await add(enforced)
    await page.route("**/delete_client/**", lose, times=1)
    await enforced.choose(NAME, f"Delete {NAME}")
    await enforced.confirm(NAME)
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_text("No clients yet.")).to_be_visible()


async def test_clients_are_found_by_a_part_of_their_names(enforced: Visitor) -> None:
    for name in (NAME, "server-7"):
        await enforced.api.call("POST", "add_client", data={"client_name": name})
    await enforced.go("/clients?search=PC-00")
    await expect(enforced.page.get_by_text("1 client found")).to_be_visible()
    await expect(enforced.page.get_by_role("row", name="server-7")).to_have_count(0)
