"""The pages of the blacklist, users, settings, audit log and server."""

import json
from typing import Any

import pytest
from playwright.async_api import expect

from common.errors import Unavailable
from common.service_client.client import ServiceClient
from tests.browser.conftest import Open
from tests.support.browser.administrators import Visitor, start_session
from tests.support.system.publishing import add_package, catalog, package_id, upload
from tests.support.system.services import Services
from tests.support.wait import until

pytestmark = pytest.mark.full
LONG_PASSWORD = "a password of theirs"


async def test_the_overview_of_a_new_tenant_shows_the_first_commands(visitor: Visitor) -> None:
    base, page = visitor.api.base_url, visitor.page
    await visitor.go()
    source = f"winget source add -n {visitor.api.tenant_id} -t Microsoft.Rest --trust-level trusted -a {base}/winget"
    await expect(page.get_by_text(source, exact=True)).to_be_visible()
    await expect(page.get_by_text(f"pkgrepo publish setup.msi --url {base} ")).to_be_visible()


async def test_the_winget_command_has_a_token_with_client_authentication(open_page: Open, services: Services) -> None:
    visitor = await start_session(await open_page(), await services.tenant(client_authentication=True))
    await visitor.go()
    await expect(visitor.page.get_by_text("/winget --header \"{'Token': '<token>'}\"")).to_be_visible()


async def test_the_overview_shows_unassigned_uploads(visitor: Visitor) -> None:
    await upload(visitor.api, b"x" * 2048)

    async def listed() -> bool:
        return bool((await visitor.api.call("GET", "get_finished_uploads")).body)

    await until(listed)
    await visitor.go()
    await expect(visitor.page.get_by_text("2 KiB ·")).to_be_visible()


async def test_an_entry_hides_a_package_from_its_client_until_it_is_deleted(visitor: Visitor) -> None:
    api, page, hidden = visitor.api, visitor.page, package_id()
    await add_package(api, hidden)
    token = (await api.call("POST", "add_client", data={"client_name": "pc-1"})).body["auth_token"]
    as_client = {"data": {"auth_token": token}}
    await visitor.go("/clients")
    await visitor.choose("pc-1", "Blacklist for pc-1", "link")
    await page.get_by_label("Package ids").first.fill(hidden)
    await page.get_by_role("button", name="Hide packages").click()
    await expect(page.get_by_role("row", name="pc-1").get_by_text(hidden)).to_be_visible()
    assert hidden not in await catalog(api.anonymous(), **as_client)
    await page.get_by_role("button", name="Delete the entry for pc-1").click()
    await visitor.confirm("")
    await expect(page.get_by_text("No blacklist entries.")).to_be_visible()
    assert hidden in await catalog(api.anonymous(), **as_client)


async def test_the_blacklist_suggests_clients_and_packages_while_typing(visitor: Visitor) -> None:
    for name in ("pc-10", "server-7"):
        await visitor.api.call("POST", "add_client", data={"client_name": name})
    for name in ("Acme.Editor", "Acme.Viewer"):
        await add_package(visitor.api, name)
    await visitor.go("/blacklist")
    await visitor.page.get_by_label("Client").press_sequentially("PC")
    client = visitor.page.locator("#client-list option")
    await expect(client).to_have_count(1)
    await expect(client).to_have_attribute("value", "pc-10")
    await visitor.page.get_by_label("Package ids").first.press_sequentially("Acme.Editor, view")
    option = visitor.page.locator("#entry-packages-list option")
    await expect(option).to_have_count(1)
    await expect(option).to_have_attribute("value", "Acme.Editor, Acme.Viewer")


async def test_an_unknown_package_is_refused_beside_its_field_until_allowed(visitor: Visitor) -> None:
    await add_package(visitor.api, "Contoso.Launcher")
    page = visitor.page
    await visitor.go("/blacklist")
    field = page.get_by_label("Package ids").first
    await field.fill("Contoso.Launchr")
    await page.get_by_role("button", name="Hide packages").click()
    await expect(field).to_have_accessible_error_message(
        "There is no package 'Contoso.Launchr'. Did you mean 'Contoso.Launcher'?"
    )
    assert (await visitor.api.call("GET", "get_blacklist")).body == []
    await page.get_by_label("Allow packages that do not exist yet").first.check()
    await page.get_by_role("button", name="Hide packages").click()
    entries = page.get_by_role("region", name="Entries")
    await expect(entries.get_by_text("unknown")).to_be_visible()


async def test_an_entry_links_to_its_package_by_name(visitor: Visitor) -> None:
    await add_package(visitor.api, "Acme.Editor", package_name="Editor")
    await visitor.api.call("POST", "add_blacklist_entry", data={"package_ids": "Acme.Editor"})
    await visitor.go("/blacklist")
    await visitor.page.get_by_role("link", name="Editor").click()
    await expect(visitor.page.get_by_role("heading", name="Editor", level=1)).to_be_visible()


async def test_long_and_impossible_ids_do_not_break_the_pages(visitor: Visitor) -> None:
    ids = ",".join(f"{number:03}{'包' * 125}" for number in range(100))
    entry = {"package_ids": ids, "allow_unknown": "1"}
    assert (await visitor.api.call("POST", "add_blacklist_entry", data=entry)).status == 201
    await visitor.api.call("PATCH", "edit_client", "\x01", data={"enabled": "0"})
    await visitor.go("/blacklist")
    await expect(visitor.page.get_by_text("100 packages")).to_be_visible()
    await visitor.go("/audit")
    await expect(visitor.page.get_by_role("heading", name="Audit log", level=1)).to_be_visible()


async def test_the_audit_log_links_packages_and_clients_by_name(visitor: Visitor) -> None:
    await add_package(visitor.api, "Acme.Editor", package_name="Editor")
    client = (await visitor.api.call("POST", "add_client", data={"client_name": "pc-1"})).body
    await visitor.api.call("PATCH", "edit_client", client["client_id"], data={"enabled": "0"})
    form = {"package_ids": "Acme.Editor,No.Such", "allow_unknown": "1"}
    await visitor.api.call("POST", "add_blacklist_entry", data=form)
    await visitor.go("/audit")
    log = visitor.page.get_by_role("region", name="Audit log")
    await expect(log.get_by_role("link", name="Editor")).to_have_count(2)
    await expect(log.get_by_role("link", name="pc-1")).to_have_count(2)
    await expect(log.get_by_text(client["client_id"]).first).to_be_hidden()


async def test_the_audit_log_is_filtered_and_downloaded(visitor: Visitor) -> None:
    await add_package(visitor.api, "Acme.Editor")
    assert (await visitor.api.call("DELETE", "delete_package", "No.Such")).status == 404
    page = visitor.page
    await visitor.go("/audit?first=nonsense")
    await page.get_by_label("Outcome").select_option("refused")
    await page.get_by_role("button", name="Filter").click()
    operations = page.get_by_role("region", name="Audit log").locator("tbody code")
    await expect(operations).to_have_text(["delete_package"])
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download JSON Lines").click()
    lines = (await (await download.value).path()).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["operation"] for line in lines] == ["delete_package"]
    await visitor.go("/audit?last=2020-01-01")
    await expect(page.get_by_text("No matching entries.")).to_be_visible()


async def test_a_used_group_is_not_deleted_and_the_page_shows_the_reason(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/blacklist")
    await page.get_by_label("Name").fill("Browsers")
    await page.get_by_label("Package ids").last.fill("Mozilla.Firefox, Google.Chrome")
    await page.get_by_label("Allow packages that do not exist yet").last.check()
    await page.get_by_role("button", name="Add group").click()
    await page.get_by_role("combobox", name="Group").select_option("Browsers")
    await page.get_by_role("button", name="Hide packages").click()
    await expect(page.get_by_role("region", name="Entries").get_by_text("Browsers")).to_be_visible()
    await page.get_by_role("button", name="Delete Browsers").click()
    await visitor.confirm("Browsers")
    await expect(page.get_by_text("Blacklist entries use this group. Delete these entries first.")).to_be_visible()


async def test_networks_without_the_own_address_are_rejected(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/settings")
    networks, save = page.get_by_role("textbox", name="Allowed networks"), page.get_by_role("button", name="Save").first
    await networks.fill("192.0.2.0/24")
    await save.click()
    await expect(page.get_by_text("These networks do not include your own address.")).to_be_visible()
    await networks.fill("192.0.2.0/24\n127.0.0.0/8")
    await save.click()
    await expect(page.get_by_text("Settings saved.")).to_be_visible()
    information = (await visitor.api.call("GET", "server_information")).body
    assert information["settings"]["allowed_networks"] == ["192.0.2.0/24", "127.0.0.0/8"]


async def test_each_form_of_the_settings_changes_only_its_own_fields(visitor: Visitor) -> None:
    page = visitor.page
    before = (await visitor.api.call("GET", "server_information")).body["settings"]
    await visitor.go("/settings")
    await page.get_by_label("Strict").check()
    await page.get_by_role("button", name="Save").nth(1).click()
    await expect(page.get_by_text("Settings saved.")).to_be_visible()
    await page.get_by_role("button", name="Add terms").click()
    await page.get_by_label("Title").fill("Terms")
    await page.get_by_label("Web address").fill("https://example.com/terms")
    async with page.expect_response("**/edit_settings") as answer:
        await page.get_by_role("button", name="Save").nth(2).click()
    assert (await answer.value).status == 200
    agreements = [{"label": "Terms", "url": "https://example.com/terms"}]
    settings = {**before, "strict_installers": True, "source_agreements": agreements}
    assert (await visitor.api.call("GET", "server_information")).body["settings"] == settings


async def test_a_new_user_signs_in_until_they_are_deleted(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/users")
    form = page.locator("details form")
    await page.get_by_role("button", name="Add user").click()
    await form.get_by_label("Username").fill("helga")
    await form.get_by_label("Password").fill(LONG_PASSWORD)
    await form.get_by_role("button", name="Add user").click()
    await expect(page.get_by_role("row", name="helga")).to_be_visible()
    helga = await visitor.api.signed_in("helga", LONG_PASSWORD)
    await page.get_by_role("button", name="Delete helga").click()
    await visitor.confirm("helga")
    await expect(page.get_by_role("row", name="helga")).to_have_count(0)
    assert (await helga.call("GET", "test")).status == 401


async def test_the_roles_of_a_user_change_in_the_list(visitor: Visitor) -> None:
    form = {"username": "helga", "password": LONG_PASSWORD, "role": "viewer"}
    await visitor.api.call("POST", "add_user", data=form)
    helga = await visitor.api.signed_in("helga", LONG_PASSWORD)
    page = visitor.page
    await visitor.go("/users")
    row = page.get_by_role("row", name="helga")
    await row.locator("summary").click()
    await row.get_by_label("Viewer").uncheck()
    await row.get_by_role("button", name="Save").click()
    await expect(row.get_by_text("role: must have at least one role")).to_be_visible()
    await row.get_by_label("Publisher").check()
    await row.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Roles changed.")).to_be_visible()
    await expect(row.locator("summary")).to_contain_text("Publisher")
    assert (await helga.call("GET", "get_users")).status == 403
    assert (await helga.call("DELETE", "delete_package", "No.Such")).status == 404


async def test_the_session_survives_a_change_of_the_own_password(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/account")
    for old, message in (
        ("wrong", "The username or the password is wrong."),
        ("a password for tests", "Password changed."),
    ):
        await page.get_by_label("Current password").fill(old)
        await page.get_by_label("New password").fill(LONG_PASSWORD)
        await page.get_by_role("button", name="Change password").click()
        await expect(page.get_by_text(message)).to_be_visible()
    await visitor.go()
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await visitor.api.signed_in(password=LONG_PASSWORD)


async def test_the_audit_log_shows_actor_and_action_and_is_filtered(visitor: Visitor) -> None:
    await visitor.api.call("POST", "add_client", data={"client_name": "pc-1"})
    await visitor.go("/audit?operation=add_client")
    rows = visitor.page.locator("tbody tr")
    await expect(rows).to_have_count(1)
    for text in ("admin", "add_client", "pc-1", "done"):
        await expect(rows.get_by_text(text).first).to_be_visible()


async def test_paging_through_the_audit_log_shows_every_entry(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.dashboard.pages.administration.PAGE_SIZE", 1)
    await visitor.api.call("POST", "add_client", data={"client_name": "pc-1"})
    seen, older = [], visitor.page.get_by_role("link", name="Older")
    await visitor.go("/audit")
    while True:
        seen += await visitor.page.locator("tbody code").all_inner_texts()
        if not await older.count():
            break
        await visitor.page.goto(str(await older.evaluate("link => link.href")))
    assert seen == ["add_client", "login", "login"]


async def test_the_server_page_shows_services_that_are_not_ready(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses = iter([{"status": "not ready", "missing": {"mongodb": "ServerSelectionTimeoutError"}}])

    async def readiness(_: ServiceClient, *, timeout: float) -> dict[str, Any]:
        for response in responses:
            return response
        raise Unavailable("10.0.0.7 does not answer")

    monkeypatch.setattr(ServiceClient, "readiness", readiness)
    await visitor.go("/server")
    rows = visitor.page.locator("tbody tr")
    for row, texts in enumerate((["Ready"], ["Not ready", "The database is unavailable."], ["Unavailable"])):
        for text in texts:
            await expect(rows.nth(row).get_by_text(text, exact=True)).to_be_visible()
    content = await visitor.page.content()
    assert "ServerSelection" not in content
    assert "10.0.0.7" not in content


async def test_the_server_page_works_without_statistics(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unavailable(*_: object) -> None:
        raise Unavailable("The client registry does not answer; try again soon.")

    monkeypatch.setattr("gateway.auth.directories.ClientDirectory.count", unavailable)
    await visitor.go("/server")
    await expect(visitor.page.get_by_text("Tenant statistics are unavailable:")).to_be_visible()
    await expect(visitor.page.locator("tbody tr")).to_have_count(5)


async def test_the_documentation_links_to_the_api_reference(visitor: Visitor) -> None:
    await visitor.go("/documentation")
    await visitor.page.get_by_role("button", name="Open API reference").click()
    await expect(visitor.page).to_have_url(f"{visitor.api.base_url}/docs")
