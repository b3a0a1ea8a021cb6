"""The pages of the clients and the API tokens: tokens that are shown once, replaced and ended."""

import pytest
from playwright.async_api import FilePayload, Locator, Route, expect

from tests.browser.conftest import Open
from tests.support.browser.administrators import Visitor, start_session
from tests.support.system.releases import set_policy
from tests.support.system.rollout_script import WindowsMachine
from tests.support.system.services import Services, bearer

pytestmark = pytest.mark.full
CLIENT, TOKEN = "pc-0042.example.com", "build server"


@pytest.fixture
async def enforced(open_page: Open, services: Services) -> Visitor:
    """The administrator of a tenant whose clients identify themselves, on the page of the clients."""
    visitor = await start_session(await open_page(), await services.tenant(client_authentication=True))
    await visitor.go("/clients")
    return visitor


def issued(visitor: Visitor, name: str) -> Locator:
    return visitor.page.get_by_role("region", name=f"Token of {name}").locator("code").first


async def issued_token(visitor: Visitor, name: str) -> str:
    await expect(issued(visitor, name)).not_to_be_empty()
    return await issued(visitor, name).inner_text()


async def add_client(visitor: Visitor) -> str:
    """Add the client through the form. Returns its token."""
    await visitor.page.get_by_label("Host name of the machine").fill(CLIENT)
    await visitor.page.locator("form").get_by_role("button", name="Add client").click()
    return await issued_token(visitor, CLIENT)


async def add_token(visitor: Visitor) -> str:
    """Add an API token through the form. Returns its text."""
    page = visitor.page
    await visitor.go("/tokens")
    await page.get_by_label("Name").fill(TOKEN)
    await page.get_by_label("Package ids").fill("Acme.*")
    await page.locator("form").get_by_role("button", name="Add API token").click()
    return await issued_token(visitor, TOKEN)


async def status_for(visitor: Visitor, token: str) -> int:
    """The status of the catalog for a client with this token."""
    return (await visitor.api.anonymous().call("POST", "get_packages", data={"auth_token": token})).status


async def status_of_token(visitor: Visitor, token: str) -> int:
    return (await visitor.api.anonymous().call("GET", "test", headers=bearer(token))).status


async def test_the_token_of_a_new_client_is_shown_once(enforced: Visitor) -> None:
    token, page = await add_client(enforced), enforced.page
    await expect(page.get_by_text(f"--header \"{{'Token': '{token}'}}\"", exact=True)).to_be_visible()
    await expect(page.get_by_text(f"-a {enforced.api.base_url}/source/{token}/winget")).to_be_visible()
    assert await status_for(enforced, token) == 200
    await page.reload()
    await expect(page.get_by_role("row", name=CLIENT)).to_be_visible()
    assert token not in await page.content()


async def test_a_replaced_token_of_a_client_ends_and_the_new_one_is_shown(enforced: Visitor) -> None:
    before = await add_client(enforced)
    await enforced.choose(CLIENT, f"New token for {CLIENT}")
    await enforced.confirm(CLIENT, "Replace")
    await expect(issued(enforced, CLIENT)).not_to_have_text(before)
    after = await issued_token(enforced, CLIENT)
    assert [await status_for(enforced, token) for token in (before, after)] == [401, 200]


async def test_a_client_without_a_source_address_gets_none_to_paste(enforced: Visitor) -> None:
    page = enforced.page
    await add_client(enforced)
    await enforced.choose(CLIENT, "Forbid source address")
    await expect(page.get_by_text("Allow source address")).to_have_count(1)  # The list is loaded again.
    await enforced.choose(CLIENT, f"New token for {CLIENT}")
    await enforced.confirm(CLIENT, "Replace")
    await expect(page.get_by_text("Command to add the source with a header")).to_be_visible()
    await expect(page.get_by_text("Command to add the personal source address")).to_be_hidden()


async def test_a_client_is_disabled_and_enabled_again(enforced: Visitor) -> None:
    token = await add_client(enforced)
    for action, state, status in (("Disable", "Disabled", 401), ("Enable", "Enabled", 200)):
        await enforced.choose(CLIENT, f"{action} {CLIENT}")
        await expect(enforced.page.get_by_role("row", name=CLIENT).get_by_text(state)).to_be_visible()
        assert await status_for(enforced, token) == status


@pytest.mark.parametrize("is_sent", [False, True], ids=["the request is lost", "the answer is lost"])
async def test_a_deletion_that_fails_halfway_can_be_retried(enforced: Visitor, is_sent: bool) -> None:
    async def lose(route: Route) -> None:
        if is_sent:
            await route.fetch()
        await route.abort()

    page = enforced.page
    token = await add_client(enforced)
    await page.route("**/delete_client/**", lose, times=1)
    await enforced.choose(CLIENT, f"Delete {CLIENT}")
    await enforced.confirm(CLIENT)
    alert = page.get_by_role("alert").filter(has_text=f"The token of {CLIENT} is no longer valid, but")
    await expect(alert).to_contain_text("The repository cannot be reached.")
    assert await status_for(enforced, token) == 401
    await alert.get_by_role("button", name="Try again").click()
    await expect(page.get_by_text("No clients yet.")).to_be_visible()


async def test_the_secret_of_a_new_api_token_is_shown_once(visitor: Visitor) -> None:
    token, page = await add_token(visitor), visitor.page
    await expect(page.get_by_role("row", name=TOKEN)).to_contain_text("Acme.*")
    assert await status_of_token(visitor, token) == 200
    await page.get_by_role("link", name="Users", exact=True).click()
    await expect(page.get_by_role("heading", level=1, name="Users")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("row", name=TOKEN)).to_be_visible()
    storage = await page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, history.state])")
    assert token not in await page.content() + storage + page.url


async def test_an_api_token_ends_when_it_is_rotated_or_deleted(visitor: Visitor) -> None:
    old, page = await add_token(visitor), visitor.page
    await page.reload()
    row = page.get_by_role("row", name=TOKEN)
    await row.locator("summary").click()
    await row.get_by_role("button", name="Rotate").click()
    new = await issued_token(visitor, TOKEN)
    assert [await status_of_token(visitor, token) for token in (old, new)] == [401, 200]
    await page.get_by_role("button", name=f"Delete {TOKEN}").click()
    await visitor.confirm(TOKEN)
    await expect(page.get_by_text("No API tokens yet.")).to_be_visible()
    assert await status_of_token(visitor, new) == 401


async def test_an_administrator_moves_a_client_to_another_ring(visitor: Visitor) -> None:
    await set_policy(visitor.api, "pilot,everyone")
    await visitor.api.call("POST", "add_client", data={"client_name": "pc-1"})
    ring = visitor.page.get_by_role("combobox", name="Ring of pc-1")
    await visitor.go("/clients")
    await expect(ring.locator("option:checked")).to_have_text("By rule, else everyone")
    for label, expected in (("pilot", "pilot"), ("By rule, else everyone", "")):
        await ring.select_option(label=label)
        await expect(visitor.page.get_by_text("Ring changed.")).to_be_visible()
        [client] = (await visitor.api.call("GET", "get_clients")).body
        assert client["ring"] == expected
        await visitor.go("/clients")
        await expect(ring.locator("option:checked")).to_have_text(label)


async def test_an_administrator_imports_three_clients_and_gets_their_tokens(visitor: Visitor) -> None:
    page = visitor.page
    await set_policy(visitor.api, "pilot,everyone")
    await visitor.go("/clients")
    form = page.locator("form").filter(has_text="Import clients")
    text = "client_name,ring\npc-1,pilot\npc-2,nowhere\npc-3,\n"
    await form.locator("input[type=file]").set_input_files(csv_file(text))
    await form.get_by_role("button", name="Import clients").click()
    await expect(form.get_by_role("alert")).to_have_text("No client was imported. No such ring: line 3.")
    await form.locator("input[type=file]").set_input_files(csv_file(text.replace("nowhere", "everyone")))
    await form.get_by_role("button", name="Import clients").click()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download tokens (CSV)").click()
    rows = (await (await download.value).path()).read_text().splitlines()
    assert rows[0] == "client_name,client_id,auth_token,source_url"
    assert [row.partition(",")[0] for row in rows[1:]] == ["pc-1", "pc-2", "pc-3"]
    assert [await status_for(visitor, row.split(",")[2]) for row in rows[1:]] == [200] * 3
    rings = [client["ring"] for client in (await visitor.api.call("GET", "get_clients")).body]
    assert rings == ["pilot", "everyone", ""]
    await expect(page.get_by_role("row", name="pc-3")).to_be_visible()


async def test_selected_clients_move_to_another_ring_with_one_confirmation(visitor: Visitor) -> None:
    page = visitor.page
    await set_policy(visitor.api, "pilot,everyone")
    added = {name: await add_by_api(visitor, name) for name in ("pc-1", "pc-2", "pc-3")}
    await visitor.go("/clients")
    for name in ("pc-1", "pc-3"):
        await page.get_by_role("checkbox", name=f"Select {name}").check()
    await expect(page.get_by_text("2 selected")).to_be_visible()
    await page.get_by_role("combobox", name="Ring of the selected clients").select_option("pilot")
    await page.get_by_role("button", name="Set ring").click()
    await expect(page.get_by_role("heading", name="Set the ring of 2 clients?")).to_be_visible()
    await visitor.confirm("", "Set ring")
    await expect(page.get_by_text("2 clients changed.")).to_be_visible()
    rings = {client["client_name"]: client["ring"] for client in (await visitor.api.call("GET", "get_clients")).body}
    assert rings == {name: "pilot" if name != "pc-2" else "" for name in added}


async def test_a_deletion_of_selected_clients_names_those_that_stay(visitor: Visitor) -> None:
    async def fail(route: Route) -> None:
        await route.abort()

    page = visitor.page
    added = {name: await add_by_api(visitor, name) for name in ("pc-1", "pc-2", "pc-3")}
    await page.route(f"**/delete_client/{added['pc-2']['client_id']}/**", fail)
    await visitor.go("/clients")
    await page.get_by_role("checkbox", name="Select all on this page").check()
    await page.get_by_role("toolbar", name="Selected clients").get_by_role("button", name="Delete").click()
    await visitor.confirm("3")
    await expect(page.get_by_role("alert")).to_contain_text(["1 of 3 clients were not changed: pc-2."])
    await expect(page.get_by_role("row", name="pc-1")).to_have_count(0)
    assert [client["client_name"] for client in (await visitor.api.call("GET", "get_clients")).body] == ["pc-2"]


async def test_new_tokens_of_selected_clients_are_downloaded(visitor: Visitor) -> None:
    page = visitor.page
    old = await add_by_api(visitor, "pc-1")
    await visitor.go("/clients")
    await page.get_by_role("checkbox", name="Select pc-1").check()
    await page.get_by_role("toolbar").get_by_role("button", name="New tokens").click()
    await visitor.confirm("1", "Replace tokens")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download tokens (CSV)").click()
    [_, row] = (await (await download.value).path()).read_text().splitlines()
    name, client_id, token, address = row.split(",")
    assert (name, client_id) == ("pc-1", old["client_id"])
    assert token != old["auth_token"]
    assert await status_for(visitor, token) == 200
    assert address == f"{visitor.api.base_url}/source/{token}/winget"


async def test_clients_are_filtered_by_state_and_last_call(visitor: Visitor) -> None:
    page = visitor.page
    added = {name: await add_by_api(visitor, name) for name in ("pc-1", "pc-2", "pc-3")}
    assert await status_for(visitor, added["pc-1"]["auth_token"]) == 200
    await visitor.api.call("PATCH", "edit_client", added["pc-3"]["client_id"], data={"enabled": "0"})
    await visitor.go("/clients")
    await page.get_by_role("combobox", name="Last seen").select_option("Never seen")
    await expect(page.get_by_text("2 clients found")).to_be_visible()
    await page.get_by_role("combobox", name="State").select_option("Enabled")
    await expect(page.get_by_text("1 client found")).to_be_visible()
    await expect(page.get_by_role("row", name="pc-2")).to_be_visible()


async def test_a_ring_of_the_release_settings_leads_to_its_clients(visitor: Visitor) -> None:
    page = visitor.page
    await set_policy(visitor.api, "pilot,everyone")
    for name, ring in (("pc-1", "pilot"), ("pc-2", ""), ("pc-3", "")):
        added = await add_by_api(visitor, name)
        await visitor.api.call("PATCH", "edit_client", added["client_id"], data={"ring": ring})
    await visitor.go("/release_settings")
    await page.get_by_role("link", name="1 client").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.get_by_role("row", name="pc-1")).to_be_visible()
    await page.get_by_role("combobox", name="Ring", exact=True).select_option("everyone (2)")
    await expect(page.locator("tbody tr")).to_have_count(2)


async def add_by_api(visitor: Visitor, name: str) -> dict[str, str]:
    added: dict[str, str] = (await visitor.api.call("POST", "add_client", data={"client_name": name})).body
    return added


def csv_file(text: str) -> FilePayload:
    return {"name": "clients.csv", "mimeType": "text/csv", "buffer": text.encode()}


async def test_one_click_makes_the_script_that_enrolls_a_machine(visitor: Visitor) -> None:
    page, api = visitor.page, visitor.api
    await visitor.go("/rollout")
    await page.get_by_label("Name").fill("graz")
    await page.get_by_role("button", name="Make token and script").click()
    issued = page.locator("#issued")
    await expect(issued).to_be_focused()
    copied = await issued.get_by_role("button", name="Copy script").get_attribute("data-copy")
    assert copied
    assert copied == await issued.locator("code").text_content()
    await expect(page.get_by_role("row", name="graz")).to_be_visible()

    await WindowsMachine(api.session, "pc-graz-1").run(copied)
    await api.call("POST", "add_client", data={"client_name": "pc-vienna-1"})
    await page.get_by_role("link", name="Machines of graz").click()
    await expect(page.get_by_role("row", name="pc-graz-1")).to_be_visible()
    await expect(page.get_by_role("row", name="pc-vienna-1")).to_have_count(0)
    await page.get_by_role("link", name="Show all clients").click()
    await expect(page.get_by_role("row", name="pc-vienna-1")).to_be_visible()
