"""The texts of the pages, as a browser without scripts reads them."""

import html
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from common.errors import Unavailable
from common.service_client.client import ServiceClient
from tests.support.samples.msi_samples import MACHINE_MSI
from tests.support.samples.signed_files import PUBLISHER, sign, unsigned
from tests.support.services.catalog import EXTERNAL
from tests.support.system.pages import load_page, load_text, main_of, sign_in
from tests.support.system.publishing import INSTALLER, add_package, publish, upload_listed, wait_for_inspection
from tests.support.system.services import Api, Services


@pytest.mark.parametrize("enforced", [False, True])
async def test_the_overview_of_a_new_tenant_shows_the_first_commands(services: Services, enforced: bool) -> None:
    api = await services.tenant(client_authentication=enforced)
    text = await load_text(api)
    address = f"{api.base_url}/winget"
    assert f"winget source add -n {api.tenant_id} -t Microsoft.Rest --trust-level trusted -a {address}" in text
    assert ("/winget --header \"{'Token': '<token>'}\"" in text) == enforced
    assert f"pkgrepo publish setup.msi --url {api.base_url} " in text


async def test_the_overview_shows_numbers_publications_and_unassigned_uploads(either: Api) -> None:
    await add_package(either, "Acme.Numbers")
    await publish(either, "Acme.Numbers")
    await upload_listed(either, b"x" * 2048)
    text = await load_text(either)
    for words in ("Packages", "Versions", "Clients", "Clients seen in 7 days"):
        assert re.search(rf"[0-9]+ {words}", text), words
    assert "Acme.Numbers 1.0" in text
    assert "2 KiB ·" in text


async def test_the_overview_shows_refused_actions_and_no_sign_ins(tenant: Api) -> None:
    for _ in range(2):
        await tenant.call("POST", "add_client", data={"client_name": "pc-overview"})
    text = await load_text(tenant)
    activity = text.partition("Recent activity")[2].partition("Full audit log")[0]
    assert activity.count("admin added a client pc-overview") == 2
    assert activity.count("refused") == 1
    assert "login" not in activity


async def test_without_other_services_the_overview_says_which(tenant: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await load_text(tenant)  # The gateway knows the roles of the user now.

    async def unavailable(*_: object, **__: object) -> None:
        raise Unavailable("It does not answer.")

    cookie = await sign_in(tenant)
    monkeypatch.setattr(ServiceClient, "json", unavailable)
    monkeypatch.setattr(ServiceClient, "readiness", unavailable)
    answer = await tenant.anonymous().call("GET", "dashboard", headers=cookie)
    assert re.search(r">Unavailable</span>\s*<a [^>]*>Installers and storage<", answer.body.decode())


async def test_the_server_page_shows_services_that_are_not_ready(tenant: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"status": "not ready", "missing": {"mongodb": "ServerSelectionTimeoutError"}}
    answers = iter([missing])

    async def readiness(_: ServiceClient, *, timeout: float) -> dict[str, Any]:
        for answer in answers:
            return answer
        raise Unavailable("10.0.0.7 does not answer")

    monkeypatch.setattr(ServiceClient, "readiness", readiness)
    page = await load_page(tenant, "server")
    for text in ("Ready", "Not ready", "The database is unavailable.", "Unavailable"):
        assert f">{text}" in page
    assert "ServerSelection" not in page
    assert "10.0.0.7" not in page


async def test_the_server_page_works_without_statistics(tenant: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unavailable(*_: object) -> None:
        raise Unavailable("The client registry does not answer; try again soon.")

    monkeypatch.setattr("gateway.auth.directories.ClientDirectory.usage", unavailable)
    text = await load_text(tenant, "server")
    assert "Tenant statistics are unavailable:" in text
    assert text.count("Ready") == 5


async def test_audit_log_and_blacklist_name_packages_and_clients(tenant: Api) -> None:
    await add_package(tenant, "Acme.Editor", package_name="Editor")
    client = (await tenant.call("POST", "add_client", data={"client_name": "pc-1"})).body
    await tenant.call("PATCH", "edit_client", client["client_id"], data={"enabled": "0"})
    form = {"package_ids": "Acme.Editor,No.Such", "allow_unknown": "1"}
    assert (await tenant.call("POST", "add_blacklist_entry", data=form)).status == 201
    log, blacklist = await load_page(tenant, "audit"), await load_page(tenant, "blacklist")
    assert len(re.findall(r'/dashboard/packages/Acme\.Editor">Editor</a>', log)) == 2
    assert len(re.findall(r'/dashboard/clients\?search=pc-1">pc-1</a>', log)) == 2
    assert re.search(r'/dashboard/packages/Acme\.Editor">Editor</a>', blacklist)
    assert "No.Such" in blacklist


async def test_many_long_ids_do_not_break_the_pages(tenant: Api) -> None:
    ids = ",".join(f"{number:03}{'包' * 125}" for number in range(100))
    entry = {"package_ids": ids, "allow_unknown": "1"}
    assert (await tenant.call("POST", "add_blacklist_entry", data=entry)).status == 201
    assert "100 packages" in await load_text(tenant, "blacklist")
    assert "add_blacklist_entry" in await load_text(tenant, "audit")


async def test_the_audit_log_is_filtered_and_downloaded(tenant: Api) -> None:
    await add_package(tenant, "Acme.Editor")
    assert (await tenant.call("DELETE", "delete_package", "No.Such")).status == 404
    page = await load_page(tenant, "audit", outcome="refused", first="nonsense")
    assert re.findall("<code>(.*?)</code>", page) == ["delete_package"]
    (address,) = re.findall(r'href="([^"]*)" hx-boost="false" download="[^"]*audit.jsonl"', page)
    path, query = urlsplit(html.unescape(address)).path, dict(parse_qsl(urlsplit(html.unescape(address)).query))
    segments = path.partition(f"/{tenant.tenant_id}/")[2].split("/")
    lines = await tenant.anonymous().call("GET", *segments, params=query, headers=await sign_in(tenant))
    assert [json.loads(line)["operation"] for line in lines.body.splitlines()] == ["delete_package"]
    assert "No matching entries." in await load_text(tenant, "audit", last="2020-01-01")


async def test_words_find_actions_of_the_last_days(tenant: Api) -> None:
    await add_package(tenant, "Acme.Editor")
    assert (await tenant.call("DELETE", "delete_package", "Acme.Editor")).status == 200
    text = await load_text(tenant, "audit", operation="Delete", days="1")
    assert "admin deleted a package delete_package" in text
    assert "added a package" not in text
    assert "admin Paket gelöscht" in await load_text(tenant, "audit", language="de", operation="paket gelöscht")


async def test_days_of_the_audit_log_are_those_of_the_browser(tenant: Api) -> None:
    await add_package(tenant, "Acme.Editor")
    now, found = datetime.now(UTC), {}
    for minutes, day in ((0, now - timedelta(days=1)), (-1439, now - timedelta(minutes=1439))):
        query = {"last": day.date().isoformat(), "minutes": str(minutes), "operation": "add_package"}
        found[minutes] = "admin added a package" in await load_text(tenant, "audit", **query)
    assert found == {0: False, -1439: True}


async def test_paging_through_the_audit_log_shows_every_entry(tenant: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.dashboard.pages.administration.PAGE_SIZE", 1)
    await tenant.call("POST", "add_client", data={"client_name": "pc-1"})
    seen: list[str] = []
    query: dict[str, str] = {"user": "admin", "operation": ""}
    for _ in range(4):
        page = await load_page(tenant, "audit", **query)
        seen += re.findall("<code>(.*?)</code>", page)
        if not (older := re.search(r'href="([^"]*)" rel="next"', page)):
            break
        query = dict(parse_qsl(urlsplit(html.unescape(older[1])).query))
    assert (seen[-2:], set(seen[:-2])) == (["add_client", "login"], {"login"})


async def test_a_long_list_is_shown_in_parts(tenant: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.dashboard.page_request.PAGE_SIZE", 1)
    monkeypatch.setattr("gateway.dashboard.pages.packages.PAGE_SIZE", 1)
    for name in ("Acme.Anvil", "Acme.Trap"):
        await add_package(tenant, name)
    uids = [(await publish(tenant, "Acme.Anvil", version)).uid for version in ("1.0", "2.0")]
    names = [await upload_listed(tenant, content) for content in (b"first", b"second")]
    rows: list[tuple[list[str], list[str]]] = [
        (["packages"], ["Acme.Anvil", "Acme.Trap"]),
        (["packages", "Acme.Anvil"], uids[::-1]),
        (["publish"], names[::-1]),
    ]
    for path, expected in rows:
        first, second, beyond = [main_of(await load_page(tenant, *path, page=page)) for page in ("1", "2", "77")]
        assert [name in first for name in expected] == [True, False], path
        for last in (second, beyond):
            assert [name in last for name in expected] == [False, True], path


async def test_a_version_has_its_size_author_and_the_reasons_of_winget(tenant: Api) -> None:
    for name in ("Acme.Anvil", "Acme.Trap"):
        await add_package(tenant, name)
    published = await publish(tenant, "Acme.Anvil", "1.0", file_type="ZIP", content=b"a" * 2048)
    assert "2 KiB" in await load_text(tenant, "packages", "Acme.Anvil")
    text = await load_text(tenant, "packages", "Acme.Anvil", "versions", published.uid)
    for words in (
        "This version is hidden from winget",
        "Nested type is required with ZIP, and not ZIP",
        "Path inside the archive is required with ZIP",
        "Size 2 KiB",
        "Author admin",
        "Download link (expires",
    ):
        assert words in text
    path = ("dashboard", "packages", "Acme.Trap", "versions", published.uid)
    answer = await tenant.anonymous().call("GET", *path, headers=await sign_in(tenant))
    assert (answer.status, b"Request failed" in answer.body) == (404, True)


async def test_a_package_with_an_external_installer_has_a_page(tenant: Api) -> None:
    await add_package(tenant, "Acme.Anvil")
    form = {**INSTALLER, **EXTERNAL, "package_version": "1.0"}
    answer = await tenant.call("POST", "add_package_version", "Acme.Anvil", data=form)
    assert answer.status == 201, answer.body
    assert "1.0" in await load_text(tenant, "packages", "Acme.Anvil")
    assert "Version 1.0" in await load_text(tenant, "packages", "Acme.Anvil", "versions", answer.body["UID"])


async def test_a_package_that_winget_refuses_has_a_badge_and_no_command(tenant: Api) -> None:
    await add_package(tenant, "SingleWordId", package_name="Anvil")
    await publish(tenant, "SingleWordId", "1.0")
    assert "Not in winget" in await load_text(tenant, "packages")
    text = await load_text(tenant, "packages", "SingleWordId")
    assert "winget does not show this package: Package id must be" in text
    assert "winget install" not in text


async def test_the_check_of_a_form_names_what_winget_refuses_or_confuses(tenant: Api) -> None:
    await add_package(tenant, "Acme.Trap", package_name="Trap")
    text = await load_text(tenant, "check", package_id="SingleWordId", package_name="TRAP 2.1")
    assert "winget will not show this package: Package id must be two to eight parts" in text
    assert "the package Acme.Trap has the same" in await load_text(
        tenant, "check", package_id="Acme.Anvil", package_name="TRAP 2.1", package_publisher="Acme"
    )
    own = {"package_id": "Acme.Trap", "package_name": "TRAP", "package_publisher": "Acme"}
    assert "winget accepts these fields." in await load_text(tenant, "check", **own)


async def test_the_form_of_a_version_says_who_signed_the_file(tenant: Api) -> None:
    name, signed = await upload_listed(tenant, unsigned("msi")), await upload_listed(tenant, sign(unsigned("msi")))
    for file in (name, signed):
        await wait_for_inspection(tenant, file)
    assert "Signature: not signed" in await load_text(tenant, "publish", name)
    text = await load_text(tenant, "publish", signed)
    assert "This file is signed, but this server does not trust the signer yet." in text
    assert f"Signer: {PUBLISHER}" in text


async def test_clients_are_found_by_a_part_of_their_names(tenant: Api) -> None:
    for name in ("pc-0042.example.com", "server-7"):
        assert (await tenant.call("POST", "add_client", data={"client_name": name})).status == 201
    text = await load_text(tenant, "clients", search="PC-00")
    assert "1 client found" in text
    assert "server-7" not in text


async def test_a_ring_that_was_removed_is_shown_with_its_client(tenant: Api) -> None:
    client = (await tenant.call("POST", "add_client", data={"client_name": "pc-1"})).body
    assert "Ring of pc-1" not in await load_page(tenant, "clients")
    await tenant.call("PATCH", "edit_settings", data={"rings": "pilot,everyone"})
    await tenant.call("PATCH", "edit_client", client["client_id"], data={"ring": "pilot"})
    await tenant.call("PATCH", "edit_settings", data={"rings": "broad,everyone"})
    page = await load_page(tenant, "clients")
    assert "Ring of pc-1" in page
    assert "pilot (removed)" in page


async def test_a_page_has_the_language_of_the_browser_until_another_is_chosen(tenant: Api) -> None:
    for language, heading in (("de-AT", "Übersicht"), ("fr-FR", "Overview")):
        assert heading in await load_text(tenant, language=language)
    answer = await tenant.anonymous().call("GET", "dashboard", "language", "de")
    assert answer.status == 303
    headers = {"Cookie": f"{(await sign_in(tenant))['Cookie']}; {answer.headers['Set-Cookie'].partition(';')[0]}"}
    page = await tenant.anonymous().call("GET", "dashboard", headers={**headers, "Accept-Language": "en"})
    assert "Übersicht" in page.body.decode()


async def test_the_form_of_a_version_is_filled_from_the_file(tenant: Api) -> None:
    name = await upload_listed(tenant, MACHINE_MSI)
    await wait_for_inspection(tenant, name)
    assert re.search(r'name="package_version"[^>]*value="[0-9]', await load_page(tenant, "publish", name))


async def test_a_hundred_sites_are_rows_of_a_small_settings_page(services: Services) -> None:
    api = await services.tenant()
    sites = [
        {"name": f"Site {number}", "networks": [f"10.{number}.0.0/16"], "downloads": f"https://s{number}.example.com"}
        for number in range(100)
    ]
    assert (await api.call("PATCH", "edit_settings", data={"sites": json.dumps(sites)})).status == 200

    page = await load_page(api, "settings")

    assert page.count('value="https://s') == 100
    assert 'value="10.99.0.0/16"' in page
    assert len(page.encode()) < 100_000
