"""The pages of packages and versions."""

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Open
from tests.support.browser.administrators import Visitor, start_session
from tests.support.services.catalog import picture
from tests.support.system.publishing import add_package, publish
from tests.support.system.services import Api

pytestmark = pytest.mark.full


async def test_a_new_tenant_adds_its_first_package_with_a_logo(visitor: Visitor, tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(picture(size=(64, 64)))
    page = visitor.page
    await visitor.go()
    await page.get_by_role("link", name="Packages", exact=True).click()
    await expect(page.get_by_role("link", name="Publish an installer")).to_be_visible()
    await page.locator("summary", has_text="Add package").click()
    await page.get_by_label("Id").fill("Acme.Anvil&Söhne")
    await page.get_by_label("Name").fill("Anvil")
    await page.get_by_label("Publisher").fill("Acme")
    await page.get_by_label("Logo").set_input_files(tmp_path / "logo.png")
    await page.get_by_role("button", name="Add package").last.click()
    await expect(page.get_by_role("heading", name="Anvil", level=1)).to_be_visible()
    assert await page.locator("img.logo").evaluate("image => image.decode().then(() => image.naturalWidth)") == 64
    command = page.get_by_text(
        f'winget install --id "Acme.Anvil&Söhne" --source {visitor.api.base_url.rpartition("/")[2]}'
    )
    await expect(command).to_be_hidden()  # There is nothing to install yet.
    await publish(visitor.api, "Acme.Anvil&Söhne")
    await page.reload()
    await expect(command).to_be_visible()


async def test_a_duplicate_package_is_reported_in_place_and_stays_reported(visitor: Visitor) -> None:
    await add_package(visitor.api, "Acme.Anvil")
    await visitor.go("/packages")
    page = visitor.page
    await page.locator("summary", has_text="Add package").click()
    for label, text in (("Name", "Anvil"), ("Publisher", "Acme"), ("Id", "Acme.Anvil")):
        await page.get_by_label(label, exact=True).fill(text)
    await page.get_by_role("button", name="Add package").last.click()
    alert = page.locator("details").get_by_role("alert")
    await expect(alert).to_have_text("A package with this id already exists: Acme.Anvil.")
    await expect(page.get_by_label("Id", exact=True)).to_have_value("Acme.Anvil")
    async with page.expect_response(lambda response: "/check?" in response.url):
        await page.get_by_label("Id", exact=True).dispatch_event("input")
        await page.get_by_label("Id", exact=True).press_sequentially("s")
    await expect(alert).to_be_visible()


async def test_a_failed_search_keeps_the_list_and_shows_the_problem(visitor: Visitor) -> None:
    await add_package(visitor.api, "Acme.Anvil")
    await visitor.go("/packages")
    page = visitor.page
    problem = '<main><h1>No</h1><p class="problem">Try again soon.</p></main>'
    await page.route(
        "**/packages?text=**", lambda route: route.fulfill(status=500, body=problem, content_type="text/html")
    )
    await page.get_by_role("searchbox").fill("x")
    await expect(page.get_by_text("Try again soon.")).to_be_visible()
    await expect(page.locator("#found").get_by_text("Acme.Anvil")).to_be_visible()


async def test_a_link_without_a_response_shows_a_problem(visitor: Visitor) -> None:
    await visitor.go()
    await visitor.page.route("**/dashboard/packages", lambda route: route.abort())
    await visitor.page.get_by_role("link", name="Packages", exact=True).click()
    await expect(visitor.page.get_by_text("The repository cannot be reached. Try again in a moment.")).to_be_visible()


async def test_packages_are_found_while_typing_and_after_a_reload(visitor: Visitor) -> None:
    for number in range(3):
        await add_package(visitor.api, f"Acme.Tool{number}", package_name=f"Tool {number}")
    await visitor.go("/packages?sort=name&descending=1")
    page = visitor.page
    rows = page.locator("tbody th a > :last-child")
    await expect(rows).to_have_text(["Tool 2", "Tool 1", "Tool 0"])
    await page.get_by_role("searchbox").fill("TOOL1")
    await expect(rows).to_have_text(["Tool 1"])
    await page.reload()
    await expect(rows).to_have_text(["Tool 1"])
    await page.get_by_role("searchbox").fill("nothing of the kind")
    await expect(page.get_by_role("status").filter(has_text="No matching packages.")).to_be_visible()
    await page.get_by_role("link", name="Show all packages").click()
    await expect(rows).to_have_count(3)


async def test_a_switch_deactivates_a_package_and_flips_back_on_failure(visitor: Visitor) -> None:
    await add_package(visitor.api, "Acme.Anvil", package_name="Anvil")
    await visitor.go("/packages")
    switch = visitor.page.get_by_role("switch", name="Anvil is active")
    async with visitor.page.expect_response("**/set_package_active/*"):
        await switch.click()
    assert (await visitor.api.call("POST", "get_packages")).body == []
    await visitor.page.reload()
    await expect(switch).not_to_be_checked()
    assert (await visitor.api.call("DELETE", "delete_package", "Acme.Anvil")).status == 200
    await switch.click()
    await expect(visitor.page.get_by_role("alert").filter(has_text="There is no package")).to_be_visible()
    await expect(switch).not_to_be_checked()


async def test_an_edit_keeps_all_other_fields(visitor: Visitor) -> None:
    await add_package(
        visitor.api, "Acme.Anvil", license="MIT", tags="draw,shape", package_url="https://example.com/anvil"
    )
    await visitor.go("/packages/Acme.Anvil")
    page = visitor.page
    await page.get_by_label("Name").fill("Anvil <b>2</b>")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name="Anvil <b>2</b>", level=1)).to_be_visible()
    details = (await visitor.api.call("GET", "get_package_details", "Acme.Anvil")).body
    assert (details["package_name"], details["license"]) == ("Anvil <b>2</b>", "MIT")
    await page.get_by_text("Additional metadata").click()
    await expect(page.get_by_role("link", name="https://example.com/anvil")).to_be_visible()
    await expect(page.get_by_role("cell", name="draw, shape")).to_be_visible()


async def test_versions_and_packages_are_deleted_by_typing_the_id(visitor: Visitor) -> None:
    await add_package(visitor.api, "Acme.Anvil", package_name="Anvil")
    for version in ("1.0", "1.1", "2.0"):
        await publish(visitor.api, "Acme.Anvil", version)
    await visitor.go("/packages/Acme.Anvil")
    page = visitor.page
    delete = page.get_by_role("button", name="Delete selected versions")
    await expect(delete).to_be_disabled()
    for version in ("1.0", "1.1"):
        await page.get_by_label(f"Select {version}").check()
    await delete.click()
    await expect(page.locator("#confirm-yes")).to_be_disabled()
    await page.locator("#confirm-id").fill("Acme.Anvil")
    await page.locator("#confirm-yes").click()
    await expect(page.locator("tbody th")).to_have_text(["2.0"])
    await page.get_by_role("button", name="Delete package").click()
    await page.locator("#confirm-id").fill("Acme.Anvil")
    await page.locator("#confirm-id").press("Enter")
    await expect(page.get_by_text("No packages yet.")).to_be_visible()
    assert (await visitor.api.call("POST", "get_packages")).body == []


async def test_a_version_is_edited_from_another_one_and_the_second_editor_is_told(visitor: Visitor) -> None:
    api, page = visitor.api, visitor.page
    await add_package(api, "Acme.Anvil")
    await publish(api, "Acme.Anvil", "1.0", switch_Silent="/quiet", dep_pkg_identifier="Acme.Base")
    new = await publish(api, "Acme.Anvil", "1.1")
    await visitor.go(f"/packages/Acme.Anvil/versions/{new.uid}")
    await page.get_by_role("button", name="Edit version").click()
    await page.get_by_label("Copy switches, scope and dependencies from").select_option(label="1.0 · x64 · stable")
    await page.get_by_role("button", name="Copy", exact=True).click()
    await expect(page.get_by_text("Filled in from version 1.0. Nothing is saved yet.")).to_be_visible()
    await expect(page.get_by_label("Silent switch")).to_have_value("/quiet")
    await page.get_by_label("Release notes", exact=True).fill("Faster.")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text("Version saved.")).to_be_visible()
    details = (await api.call("GET", "get_version_details", new.uid)).body
    assert (details["switch_Silent"], details["dep_pkg_identifier"]) == ("/quiet", ["Acme.Base"])
    await expect(page).to_have_url(f"{api.base_url}/dashboard/packages/Acme.Anvil/versions/{new.uid}")
    await page.get_by_role("button", name="Edit version").click()
    await page.get_by_label("Silent switch").fill("/mine")
    change = await api.call("PATCH", "edit_package_version", new.uid, data={"switch_Silent": "/theirs"})
    assert change.status == 200, change.body
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text("changed this version since you read it. Fields: switch_Silent.")).to_be_visible()
    await expect(page.get_by_label("Silent switch")).to_have_value("/mine")


async def test_the_second_editor_of_a_package_is_told(visitor: Visitor) -> None:
    page = visitor.page
    await add_package(visitor.api, "Acme.Anvil")
    await visitor.go("/packages/Acme.Anvil")
    await page.get_by_label("Publisher").fill("Mine")
    theirs = {"package_publisher": "Theirs"}
    assert (await visitor.api.call("PATCH", "edit_package", "Acme.Anvil", data=theirs)).status == 200
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text("Somebody else changed this package since you read it.")).to_be_visible()
    await expect(page.get_by_label("Publisher")).to_have_value("Mine")


async def test_a_form_is_checked_on_submit_without_scripts(open_page: Open, tenant: Api) -> None:
    visitor = await start_session(await open_page(java_script_enabled=False), tenant)
    await visitor.go("/packages")
    page = visitor.page
    await page.locator("summary", has_text="Add package").click()
    for label, text in (("Id", "SingleWordId"), ("Name", "Anvil"), ("Publisher", "Acme")):
        await page.get_by_label(label, exact=True).fill(text)
    await page.get_by_role("button", name="Add package").last.click()
    await expect(page.get_by_text("winget will not show this package: Package id must be")).to_be_visible()
    await expect(page.get_by_text("Nothing was saved")).to_be_visible()
