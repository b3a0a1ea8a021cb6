"""Windows' winget client with a tenant as its source, in both deployments."""

import re
from hashlib import sha256
from typing import Any

import pytest
from aiohttp import FormData

from common.auth.internal_tokens import Deployment
from tests.support.api import Answer, read_answer
from tests.support.services.catalog import picture
from tests.support.system.publishing import add_package, package_id, publish
from tests.support.system.raw_http import send_raw
from tests.support.system.services import Api, Services
from tests.support.winget.client import CONTRACTS, Installed, WingetClient
from tests.support.winget.rules import AnswerRejected

CODE = "{%08X-89AB-CDEF-0123-456789ABCDEF}"


def client_of(api: Api, **options: Any) -> WingetClient:
    return WingetClient(api.session, f"{api.base_url}/winget", **options)


async def test_winget_adds_searches_shows_and_installs(either: Api) -> None:
    winget, name = client_of(either), package_id()
    await add_package(either, name, package_name="Roadrunner Trap", package_publisher="Acme")
    older = await publish(either, name, "1.9")
    newer = await publish(either, name, "1.10", switch_Silent="/S")
    information = await winget.add()
    assert (information["SourceIdentifier"], winget.contract) == (f"pkgrepo-{either.tenant_id}", "1.28.0")
    assert name in {hit.package_id for hit in await winget.search()}
    (hit,) = await winget.search(name.removeprefix("Acme."))
    assert (hit.package_id, hit.name, hit.publisher) == (name, "Roadrunner Trap", "Acme")
    assert [version["PackageVersion"] for version in hit.versions] == ["1.10", "1.9"]
    manifest = await winget.show(name.upper())
    assert manifest["PackageVersion"] == "1.10"
    assert manifest["Installers"][0]["InstallerSwitches"] == {"Silent": "/S"}
    assert await winget.install(name) == newer.content
    assert await winget.install(name, "1.9") == older.content


async def test_every_client_gets_the_fields_of_its_contract(each: Api) -> None:
    name = package_id()
    await add_package(each, name)
    published = await publish(
        each,
        name,
        upgrades="deny",
        upgradecode=CODE % 7,
        switch_Repair="/repair",
        desired_state_configuration='{"dscv3": {"resources": [{"type": "Acme.Editor/Settings"}]}}',
    )
    for version in CONTRACTS:
        winget = client_of(each, versions=[version])
        await winget.add()
        assert winget.contract == version
        installer = (await winget.show(name))["Installers"][0]
        (hit,) = await winget.search(filters=[("PackageIdentifier", "StartsWith", name)])
        minor = int(version.split(".")[1])
        assert {
            "AppsAndFeaturesEntries": "AppsAndFeaturesEntries" in installer,
            "UpgradeCodes": "UpgradeCodes" in hit.versions[0],
            "UpgradeBehavior": "UpgradeBehavior" in installer,
            "Repair": "Repair" in installer.get("InstallerSwitches", {}),
            "DesiredStateConfiguration": "DesiredStateConfiguration" in installer,
        } == {
            "AppsAndFeaturesEntries": minor >= 1,
            "UpgradeCodes": minor >= 4,
            "UpgradeBehavior": minor >= 6,
            "Repair": minor >= 7,
            "DesiredStateConfiguration": minor >= 28,
        }, version
        assert await winget.install(name) == published.content


async def test_an_installed_program_is_found_by_product_code_or_name(either: Api) -> None:
    winget, name = client_of(either), package_id()
    number = int(name.removeprefix("Acme.")[:8], 16)
    title = f"Trap {name.removeprefix('Acme.').translate(str.maketrans('0123456789', 'ghijklmnop'))}"
    await add_package(either, name, package_name=title)
    await publish(either, name, "2.0", file_type="MSI", productcode=CODE % number)
    by_code = Installed("Something else", "1.0", product_code=CODE % number)
    by_name = Installed(f"{title} 1.0 (x64)", "1.0")
    assert await winget.upgrade(by_code) == (name, "2.0")
    assert await winget.upgrade(by_name) == (name, "2.0")
    assert await winget.upgrade(Installed(title, "2.0", product_code=CODE % number)) is None
    assert await winget.upgrade(Installed("Unknown program", "1.0")) is None


async def offered_icon(api: Api, name: str, version: str = CONTRACTS[-1]) -> dict[str, Any]:
    """The only icon in a package's manifest."""
    winget = client_of(api, versions=[version])
    (icon,) = (await winget.show(name))["DefaultLocale"]["Icons"]
    return dict(icon)


async def fetch(api: Api, address: str, **headers: str) -> Answer:
    """Fetch an address without a token."""
    async with api.session.get(address, headers=headers) as response:
        return await read_answer(response)


async def add_package_with_logo(api: Api, name: str, **image: Any) -> None:
    form = FormData({"package_id": name, "package_name": "Trap", "package_publisher": "Acme"})
    form.add_field("Logo", picture(**image), filename="logo.png", content_type="image/png")
    assert (await api.call("POST", "add_package", data=form)).status == 200
    await publish(api, name)


async def test_a_logo_is_an_icon_that_needs_no_token(either: Api) -> None:
    name = package_id()
    await add_package_with_logo(either, name, size=(64, 64))

    icon = await offered_icon(either, name)
    answer = await fetch(either, icon["IconUrl"])

    assert (answer.status, answer.headers["Content-Type"]) == (200, "image/png")
    assert sha256(answer.body).hexdigest().upper() == icon["IconSha256"]
    assert (icon["IconFileType"], icon["IconResolution"], icon["IconTheme"]) == ("png", "64x64", "default")
    again = await fetch(either, icon["IconUrl"], **{"If-None-Match": answer.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")


async def test_contracts_without_icons_get_no_logo(each: Api) -> None:
    name = package_id()
    await add_package_with_logo(each, name)

    manifest = await client_of(each, versions=["1.4.0"]).show(name)

    assert "Icons" not in manifest["DefaultLocale"]


async def test_an_altered_or_expired_icon_address_is_rejected(each: Api) -> None:
    name, other = package_id(), package_id()
    for package in (name, other):
        await add_package_with_logo(each, package)
    address = (await offered_icon(each, name))["IconUrl"]

    for altered in (
        address.replace(name, other),
        re.sub("expires=[0-9]+", "expires=9999999999", address),
        re.sub("expires=[0-9]+", "expires=x", address),
        re.sub("signature=.*", "signature=x", address),
        re.sub("signature=.*", "signature=%C3%A9", address),
        address.partition("?")[0],
    ):
        assert (await fetch(each, altered)).status == 403, altered


async def test_an_icon_address_ends_with_its_logo_or_package(tenant: Api) -> None:
    name = package_id()
    await add_package_with_logo(tenant, name)
    former = (await offered_icon(tenant, name))["IconUrl"]
    form = FormData()
    form.add_field("Logo", picture(size=(16, 16)), filename="logo.png", content_type="image/png")
    assert (await tenant.call("PATCH", "edit_package", name, data=form)).status == 200
    present = await offered_icon(tenant, name)

    assert (await fetch(tenant, former)).status == 404
    assert (await fetch(tenant, present["IconUrl"])).status == 200
    assert present["IconResolution"] == "16x16"
    assert (await tenant.call("DELETE", "delete_package", name)).status == 200
    assert (await fetch(tenant, present["IconUrl"])).status == 404


async def test_the_icon_of_a_hidden_package_is_not_listed(enforcing: Api) -> None:
    name = package_id()
    await add_package_with_logo(enforcing, name)
    added = (await enforcing.call("POST", "add_client", data={"client_name": f"pc-{name.lower()}"})).body
    entry = {"client_id": added["client_id"], "package_ids": name}
    assert (await enforcing.call("POST", "add_blacklist_entry", data=entry)).status == 201

    assert await client_of(enforcing, header=added["auth_token"]).manifests(name) == []


async def test_the_short_address_of_a_single_tenant_is_the_same_source(single: Api) -> None:
    name = package_id()
    await add_package(single, name)
    published = await publish(single, name)
    winget = WingetClient(single.session, single.base_url.replace("/client/api", "/api"))
    assert [hit.package_id for hit in await winget.search(name)] == [name]
    assert await winget.install(name) == published.content
    assert single.deployment is Deployment.SINGLE


async def test_a_client_sends_its_token_with_every_command(enforcing: Api, enforcing_single: Api) -> None:
    name = package_id()
    await add_package(enforcing, name)
    published = await publish(enforcing, name)
    added = (await enforcing.call("POST", "add_client", data={"client_name": f"pc-{name.lower()}"})).body
    token = added["auth_token"]
    for api in (enforcing, enforcing_single):
        for form in ("{{'Token': '{}'}}", '{{"Token": "{}"}}', "{{ 'token' : '{}' }}", "{}"):
            winget = client_of(api, header=form.format(token))
            assert [hit.package_id for hit in await winget.search(name)] == [name], form
            assert await winget.install(name) == published.content, form
            await _check_rejected(api, name, form.format("another"))
        for header in ("", "{'Token': ''}", f"{{'Key': '{token}'}}"):
            await _check_rejected(api, name, header)


async def _check_rejected(api: Api, name: str, header: str) -> None:
    """Check that a client with this header can add the source, but sees no package."""
    winget = client_of(api, header=header)
    await winget.add()
    for command in (winget.search(name), winget.show(name)):
        with pytest.raises(AnswerRejected, match="401 application/json"):
            await command


async def test_the_blacklist_hides_packages_from_winget(enforcing: Api, enforcing_single: Api) -> None:
    visible, hidden = package_id(), package_id()
    for name in (visible, hidden):
        await add_package(enforcing, name)
        await publish(enforcing, name)
    added = (await enforcing.call("POST", "add_client", data={"client_name": f"pc-{visible.lower()}"})).body
    clients = [client_of(api, header=added["auth_token"]) for api in (enforcing, enforcing_single)]
    for winget in clients:
        assert await winget.manifests(hidden)
    entry = {"client_id": added["client_id"], "package_ids": hidden}
    assert (await enforcing.call("POST", "add_blacklist_entry", data=entry)).status == 201
    for winget in clients:
        listed = {hit.package_id for hit in await winget.search()}
        assert (visible in listed, hidden in listed) == (True, False)
        assert await winget.manifests(hidden) == []
        assert await winget.manifests(visible)
        administrator_view = await enforcing.call(
            "GET", "winget", "packageManifests", hidden, headers={"Version": CONTRACTS[-1]}
        )
        assert administrator_view.status == 200
        assert await winget.manifests(hidden) == []


async def test_searches_show_a_change_of_a_package_at_once(either: Api) -> None:
    winget, name = client_of(either), package_id()
    await add_package(either, name)
    await publish(either, name)
    for active in ("1", "0", "1"):
        changed = await either.call("PATCH", "set_package_active", name, data={"package_active": active})
        assert changed.status == 200
        for _ in range(2):
            assert [hit.package_id for hit in await winget.search(name)] == [name] * int(active)
            assert len(await winget.manifests(name)) == int(active)


async def test_changed_agreements_have_a_new_identifier(tenant: Api) -> None:
    identifiers = []
    for terms in ('[{"label": "Terms", "text": "Be kind."}]', '[{"label": "Terms", "url": "https://example.com"}]'):
        changed = await tenant.call("PATCH", "edit_settings", data={"source_agreements": terms})
        assert changed.status == 200, changed.body
        agreements = (await client_of(tenant).add())["SourceAgreements"]
        identifiers.append(agreements["AgreementsIdentifier"])
    assert agreements["Agreements"] == [{"AgreementLabel": "Terms", "AgreementUrl": "https://example.com"}]
    assert len(set(identifiers)) == 2
    assert (await tenant.call("PATCH", "edit_settings", data={"source_agreements": ""})).status == 200
    assert "SourceAgreements" not in await client_of(tenant).add()


BAD = {
    "no JSON": b"{",
    "no object": b"[]",
    "an unknown match type": b'{"Query": {"KeyWord": "a", "MatchType": "Regex"}}',
    "an unknown field": b'{"Filters": [{"PackageMatchField": "X", "RequestMatch": {}}]}',
    "a keyword too long": b'{"Query": {"KeyWord": "%s", "MatchType": "Exact"}}' % (b"a" * 256),
    "too many parts of values": b'{"Filters": [%s]}'
    % b",".join(
        b'{"PackageMatchField": "Tag", "RequestMatch": {"KeyWord": "%d", "MatchType": "Fuzzy"}}' % number
        for number in range(9)
    ),
}


async def test_a_bad_search_is_rejected_in_the_protocols_form(each: Api) -> None:
    for body in BAD.values():
        check_winget_error(400, await each.call("POST", "winget", "manifestSearch", data=body))


async def test_a_bad_header_is_rejected_in_the_protocols_form(each: Api) -> None:
    for headers in ({"ContinuationToken": "x"}, {"Version": "2.0.0"}, {"Version": "latest"}):
        check_winget_error(400, await each.call("POST", "winget", "manifestSearch", json={}, headers=headers))
    check_winget_error(400, await each.call("GET", "winget", "packageManifests", "A.B", headers={"Version": "x"}))
    check_winget_error(400, await each.call("GET", "winget", "packageManifests", "A.B", params={"Version": "a" * 129}))


async def test_an_unknown_package_is_204_and_an_unknown_tenant_404(each: Api, services: Services) -> None:
    for name in ("Acme.Nobody", "nobody", "a*", "..x", "%00"[:1], "A" * 200):
        answer = await each.call("GET", "winget", "packageManifests", name)
        assert (answer.status, answer.body) == (204, b"")
    nobody = services.api("nobody")
    check_winget_error(404, await nobody.call("GET", "winget", "packageManifests", "a/b"))
    check_winget_error(404, await nobody.call("GET", "winget", "information"))
    check_winget_error(404, await nobody.call("POST", "winget", "manifestSearch", json={}))


# Texts that a user may type, as parts of the path.
TEXTS = {
    "slashes": "a/b/c",
    "encoded slashes": "a%2Fb%5Cc",
    "dot segments": "../information",
    "encoded dot segments": "%2e%2e/%2e%2e/internal",
    "no text": "%ff%00",
    "a wrong escape": "100%",
    "characters of no path": "a|b{c}",
    "another script": "%E7%BC%96%E8%BE%91%E5%99%A8",
    "an id too long": "Acme." + "e" * 6_000,
    "spaces": "Visual%20Studio%20Code",
    "an address": "https://example.com/a.b",
}


async def test_a_text_that_is_no_package_id_finds_nothing(each: Api) -> None:
    host, _, path = each.base_url.removeprefix("http://").partition("/")

    for name, text in TEXTS.items():
        answer = await send_raw(f"http://{host}", "GET", f"/{path}/winget/packageManifests/{text}")

        assert (answer.status, answer.body) == (204, b""), name


async def test_the_short_address_accepts_any_text_as_package_id(single: Api) -> None:
    address = single.base_url.removesuffix("/client/api")

    answer = await send_raw(address, "GET", "/api/packageManifests/a/..%2Fb")

    assert (answer.status, answer.body) == (204, b"")


async def test_a_text_that_is_no_package_id_needs_the_client_token(enforcing: Api) -> None:
    host, _, path = enforcing.base_url.removeprefix("http://").partition("/")

    answer = await send_raw(f"http://{host}", "GET", f"/{path}/winget/packageManifests/a/b")

    check_winget_error(401, answer)


async def test_the_real_client_rejects_a_source_without_https(tenant: Api) -> None:
    with pytest.raises(AnswerRejected, match="https"):
        await client_of(tenant, https_only=True).add()


async def test_the_information_of_the_source_may_be_cached(each: Api) -> None:
    answer = await each.anonymous().call("GET", "winget", "information")
    assert answer.headers["Cache-Control"] == "private, max-age=300"
    assert answer.body["Data"]["ServerSupportedVersions"] == list(CONTRACTS)


def check_winget_error(status: int, answer: Answer) -> None:
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/json")
    message = answer.body["message"]
    assert message
    assert answer.body == {"code": status, "message": message, "ErrorCode": status, "ErrorMessage": message}
