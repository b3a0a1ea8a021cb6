"""The pages of the blacklist, users, settings, audit log and server."""

import json

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Open
from tests.support.browser.administrators import Visitor
from tests.support.system.publishing import add_package, catalog, package_id
from tests.support.system.releases import set_policy

pytestmark = pytest.mark.full
LONG_PASSWORD = "a password of theirs"


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
        await page.get_by_role("button", name="Save").nth(3).click()
    assert (await answer.value).status == 200
    agreements = [{"label": "Terms", "url": "https://example.com/terms"}]
    settings = {**before, "strict_installers": True, "source_agreements": agreements}
    assert (await visitor.api.call("GET", "server_information")).body["settings"] == settings


async def test_a_site_is_added_and_removed_as_a_row(visitor: Visitor) -> None:
    page = visitor.page
    graz = {"name": "Graz", "networks": ["10.20.0.0/16", "10.21.0.7"], "downloads": "https://graz.example.com"}

    async def stored() -> object:
        return (await visitor.api.call("GET", "server_information")).body["settings"]["sites"]

    async def save() -> None:
        async with page.expect_response("**/edit_settings") as answer:
            await page.locator("form", has_text="Sites").get_by_role("button", name="Save").click()
        assert (await answer.value).status == 200

    await visitor.go("/settings")
    await page.get_by_role("button", name="Add site").click()
    await page.get_by_label("Site", exact=True).fill("Graz")
    await page.get_by_label("Networks", exact=True).fill("10.20.3.4/16, 10.21.0.7")
    await page.get_by_label("Address of its cache").fill("https://graz.example.com")
    await save()
    assert await stored() == [graz]
    await visitor.go("/settings")
    await expect(page.get_by_label("Networks", exact=True)).to_have_value("10.20.0.0/16, 10.21.0.7")
    await page.get_by_role("button", name="Remove site").click()
    await save()
    assert await stored() == []


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


async def test_a_user_has_the_chosen_roles_until_they_are_deleted(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/users")
    form = page.locator("details form")
    await page.get_by_role("button", name="Add user").click()
    await form.get_by_label("Username").fill("helga")
    await form.get_by_label("Password").fill(LONG_PASSWORD)
    await form.get_by_role("button", name="Add user").click()
    row = page.get_by_role("row", name="helga")
    await row.locator("summary").first.click()
    await row.get_by_label("Viewer").uncheck()
    await row.get_by_role("button", name="Save").click()
    await expect(row.get_by_text("role: must have at least one role")).to_be_visible()
    await row.get_by_label("Publisher").check()
    await row.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Roles changed.")).to_be_visible()
    helga = await visitor.api.signed_in("helga", LONG_PASSWORD)
    assert (await helga.call("GET", "get_users")).status == 403
    await visitor.choose("helga", "Delete helga")
    await visitor.confirm("helga")
    await expect(row).to_have_count(0)
    assert (await helga.call("GET", "test")).status == 401


async def test_a_user_signs_in_with_a_reset_password_and_a_new_one(visitor: Visitor, open_page: Open) -> None:
    page, new = visitor.page, "a password that nobody else knows"
    form = {"username": "helga", "password": LONG_PASSWORD, "role": "viewer"}
    await visitor.api.call("POST", "add_user", data=form)
    helga = await visitor.api.signed_in("helga", LONG_PASSWORD)
    await visitor.go("/users")
    await visitor.choose("helga", "Reset password: helga")
    await visitor.confirm("", "Reset password")
    secret = page.get_by_role("region", name="Temporary password of helga").locator("code")
    await expect(secret).not_to_be_empty()
    temporary = await secret.inner_text()
    await expect(page.get_by_role("row", name="helga").get_by_text("must change password")).to_be_visible()
    assert (await helga.call("GET", "test")).status == 401
    theirs = await open_page()
    await theirs.goto(f"{visitor.api.base_url}/sign_in")
    await theirs.get_by_label("Username").fill("helga")
    await theirs.get_by_label("Password").fill(temporary)
    await theirs.get_by_role("button", name="Sign in").click()
    await expect(theirs.get_by_role("alert")).to_have_text("An administrator reset this password. Choose a new one.")
    await theirs.get_by_label("Password", exact=True).fill(temporary)
    await theirs.get_by_label("New password").fill(new)
    await theirs.get_by_role("button", name="Sign in").click()
    await expect(theirs).to_have_url(f"{visitor.api.base_url}/dashboard")
    await visitor.go("/users")
    row = page.get_by_role("row", name="helga")
    await expect(row.get_by_text("must change password")).to_have_count(0)
    await expect(row.locator("time")).to_have_count(2)
    assert (
        await visitor.api.anonymous().call("POST", "login", data={"username": "helga", "password": new})
    ).status == 200


async def test_the_settings_page_changes_the_policy_for_releases(visitor: Visitor) -> None:
    await set_policy(visitor.api, "pilot,everyone")
    page, rules = visitor.page, [{"network": "10.1.0.0/16", "ring": "fast"}]
    policy = {"gates": {"slow": {"approvals": 2}}, "retention": [{"packages": "Acme.*", "keep_versions": 3}]}
    await visitor.go("/release_settings")
    await page.get_by_text("Advanced: as JSON").click()
    await expect(page.get_by_label("Rings, separated by commas")).to_have_value("pilot,everyone")
    await page.get_by_label("Rings, separated by commas").fill("fast,slow")
    await page.get_by_label("Ring rules").fill(json.dumps(rules))
    await page.get_by_label("Gates").fill(json.dumps(policy["gates"]))
    await page.get_by_label("Retention rules").fill(json.dumps(policy["retention"], indent=1))
    await page.get_by_role("button", name="Save").last.click()
    await expect(page.get_by_text("Settings saved.")).to_be_visible()

    settings = (await visitor.api.call("GET", "server_information")).body["settings"]
    assert {name: settings[name] for name in policy} == policy
    assert (settings["rings"], settings["ring_rules"]) == (["fast", "slow"], rules)
    await visitor.go("/release_settings")
    assert json.loads(await page.get_by_label("Gates").input_value()) == policy["gates"]
