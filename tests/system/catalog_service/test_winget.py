"""Windows' winget client with a tenant as its source."""

import re
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import FormData

from tests.support.api import Answer, read_answer
from tests.support.services.catalog import picture
from tests.support.system.publishing import add_package, package_id, publish
from tests.support.system.raw_http import send_raw
from tests.support.system.services import Api, Services
from tests.support.winget.client import CONTRACTS, Installed, WingetClient
from tests.support.winget.rules import AnswerRejected

CODE = "{01234567-89AB-CDEF-0123-456789ABCDEF}"


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


async def test_a_personal_source_address_needs_no_header(either: Api) -> None:
    name = package_id()
    await add_package(either, name)
    published = await publish(either, name)
    added = (await either.call("POST", "add_client", data={"client_name": "localhost"})).body
    winget = WingetClient(either.session, added["source_url"])
    assert (await winget.add())["SourceIdentifier"] == f"pkgrepo-{either.tenant_id}"
    (hit,) = await winget.search(name)
    manifest = await winget.show(hit.package_id)
    assert added["auth_token"] not in str(manifest)
    assert await winget.install(name) == published.content
    entry = {"client_id": added["client_id"], "package_ids": name}
    assert (await either.call("POST", "add_blacklist_entry", data=entry)).status == 201
    assert await winget.search(name) == []
    assert await client_of(either).search(name)
    answer = await either.call("DELETE", "delete_client", added["client_id"], added["auth_token"])
    assert answer.status == 200


async def test_another_token_is_refused_in_a_source_address_even_if_no_token_is_needed(tenant: Api) -> None:
    added = (await tenant.call("POST", "add_client", data={"client_name": "pc"})).body
    wrong = added["source_url"].replace(added["auth_token"], str(uuid4()))
    rotated = (await tenant.call("POST", "rotate_client_token", added["client_id"])).body
    assert (await client_of(tenant).add())["SourceIdentifier"] == f"pkgrepo-{tenant.tenant_id}"
    for address, status in ((wrong, 401), (added["source_url"], 401), (rotated["source_url"], 200)):
        async with tenant.session.get(f"{address}/information") as response:
            answer = await read_answer(response)
        assert answer.status == status
        assert status == 200 or answer.body["ErrorCode"] == 401
    for operation, form in (
        ("edit_client/" + added["client_id"], "source_address"),
        ("edit_settings", "source_address"),
    ):
        await tenant.call("PATCH", *operation.split("/"), data={form: "0"})
        async with tenant.session.get(f"{rotated['source_url']}/information") as response:
            assert response.status == 401
        await tenant.call("PATCH", *operation.split("/"), data={form: "1"})
    async with tenant.session.get(f"{rotated['source_url']}/information") as response:
        assert response.status == 200


async def test_an_installed_program_is_found_by_product_code_or_name(tenant: Api) -> None:
    winget, name = client_of(tenant), package_id()
    await add_package(tenant, name, package_name="Trap")
    await publish(tenant, name, "2.0", file_type="MSI", productcode=CODE)
    for installed, found in (
        (Installed("Something else", "1.0", product_code=CODE), (name, "2.0")),
        (Installed("Trap 1.0 (x64)", "1.0"), (name, "2.0")),
        (Installed("Trap", "2.0", product_code=CODE), None),
        (Installed("Unknown program", "1.0"), None),
    ):
        assert await winget.upgrade(installed) == found, installed


async def offered_icon(api: Api, name: str) -> dict[str, Any]:
    """The only icon in a package's manifest."""
    (icon,) = (await client_of(api).show(name))["DefaultLocale"]["Icons"]
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
    assert "Icons" not in (await client_of(either, versions=["1.4.0"]).show(name))["DefaultLocale"]


async def test_an_altered_or_expired_icon_address_is_rejected(tenant: Api) -> None:
    name, other = package_id(), package_id()
    for package in (name, other):
        await add_package_with_logo(tenant, package)
    address = (await offered_icon(tenant, name))["IconUrl"]

    for altered in (
        address.replace(name, other),
        re.sub("expires=[0-9]+", "expires=9999999999", address),
        re.sub("expires=[0-9]+", "expires=x", address),
        re.sub("signature=.*", "signature=x", address),
        re.sub("signature=.*", "signature=%C3%A9", address),
        address.partition("?")[0],
    ):
        assert (await fetch(tenant, altered)).status == 403, altered


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


async def test_the_short_address_of_a_single_tenant_is_the_same_source(single: Api) -> None:
    name = package_id()
    await add_package(single, name)
    published = await publish(single, name)
    winget = WingetClient(single.session, single.base_url.replace("/client/api", "/api"))
    assert [hit.package_id for hit in await winget.search(name)] == [name]
    assert await winget.install(name) == published.content
    address = single.base_url.removesuffix("/client/api")
    unknown = await send_raw(address, "GET", "/api/packageManifests/a/..%2Fb")
    assert (unknown.status, unknown.body) == (204, b"")


@pytest.fixture
async def client(enforcing: Api) -> dict[str, str]:
    """The id and the token of a new client."""
    added = await enforcing.call("POST", "add_client", data={"client_name": f"pc-{uuid4().hex[:8]}"})
    client: dict[str, str] = added.body
    return client


async def test_a_client_sends_its_token_with_every_command(
    enforcing: Api, enforcing_single: Api, client: dict[str, str]
) -> None:
    name = package_id()
    await add_package(enforcing, name)
    published = await publish(enforcing, name)
    for api in (enforcing, enforcing_single):
        for form in ("{{'Token': '{}'}}", '{{"Token": "{}"}}', "{{ 'token' : '{}' }}", "{}"):
            winget = client_of(api, header=form.format(client["auth_token"]))
            assert [hit.package_id for hit in await winget.search(name)] == [name], form
            assert await winget.install(name) == published.content, form


@pytest.mark.parametrize("header", ["", "{'Token': ''}", "{'Key': '%s'}", "{'Token': 'another'}", "another"])
async def test_a_client_without_its_token_adds_the_source_only(
    enforcing: Api, client: dict[str, str], header: str
) -> None:
    name = package_id()
    await add_package(enforcing, name)
    await publish(enforcing, name)
    winget = client_of(enforcing, header=header.replace("%s", client["auth_token"]))
    await winget.add()
    for command in (winget.search(name), winget.show(name)):
        with pytest.raises(AnswerRejected, match="401 application/json"):
            await command


async def test_the_blacklist_hides_packages_from_winget(
    enforcing: Api, enforcing_single: Api, client: dict[str, str]
) -> None:
    visible, hidden = package_id(), package_id()
    for name in (visible, hidden):
        await add_package(enforcing, name)
        await publish(enforcing, name)
    clients = [client_of(api, header=client["auth_token"]) for api in (enforcing, enforcing_single)]
    for winget in clients:
        assert await winget.manifests(hidden)
    entry = {"client_id": client["client_id"], "package_ids": hidden}
    assert (await enforcing.call("POST", "add_blacklist_entry", data=entry)).status == 201
    for winget in clients:
        ids = {hit.package_id for hit in await winget.search()}
        assert (visible in ids, hidden in ids) == (True, False)
        assert await winget.manifests(visible)
        assert await winget.manifests(hidden) == []
        headers = {"Version": CONTRACTS[-1]}
        seen = await enforcing.call("GET", "winget", "packageManifests", hidden, headers=headers)
        assert seen.status == 200  # An administrator sees it, and the client still does not.
        assert await winget.manifests(hidden) == []


async def test_searches_show_a_change_of_a_package_at_once(tenant: Api) -> None:
    winget, name = client_of(tenant), package_id()
    await add_package(tenant, name)
    await publish(tenant, name)
    for active in ("1", "0", "1"):
        changed = await tenant.call("PATCH", "set_package_active", name, data={"package_active": active})
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


LONG_KEYWORD = b'{"Query": {"KeyWord": "%s", "MatchType": "Exact"}}' % (b"a" * 256)


@pytest.mark.parametrize(
    ("method", "path", "request_"),
    [
        ("POST", "manifestSearch", {"data": b"{"}),
        ("POST", "manifestSearch", {"data": LONG_KEYWORD}),
        ("POST", "manifestSearch", {"json": {}, "headers": {"ContinuationToken": "x"}}),
        ("POST", "manifestSearch", {"json": {}, "headers": {"Version": "2.0.0"}}),
        ("GET", "packageManifests/A.B", {"headers": {"Version": "x"}}),
        ("GET", "packageManifests/A.B", {"params": {"Version": "a" * 129}}),
    ],
    ids=["no JSON", "long keyword", "token", "contract", "contract of a manifest", "long version"],
)
async def test_a_bad_request_is_rejected_in_the_protocols_form(
    tenant: Api, method: str, path: str, request_: dict[str, Any]
) -> None:
    check_winget_error(400, await tenant.call(method, "winget", *path.split("/"), **request_))


async def test_an_unknown_tenant_is_answered_in_the_protocols_form(services: Services) -> None:
    nobody = services.api("nobody")
    check_winget_error(404, await nobody.call("GET", "winget", "packageManifests", "a/b"))
    check_winget_error(404, await nobody.call("GET", "winget", "information"))
    check_winget_error(404, await nobody.call("POST", "winget", "manifestSearch", json={}))


# Texts that a user may type, as parts of the path.
TEXTS = {
    "an unknown id": "Acme.Nobody",
    "slashes": "a/b/c",
    "encoded slashes": "a%2Fb%5Cc",
    "dot segments": "../information",
    "encoded dot segments": "%2e%2e/%2e%2e/internal",
    "no text": "%ff%00",
    "a wrong escape": "100%",
    "characters of no path": "a|b{c}",
    "another script": "%E7%BC%96%E8%BE%91%E5%99%A8",
    "an id too long": "Acme." + "e" * 6_000,
    "an address": "https://example.com/a.b",
}


async def test_a_text_that_is_no_package_id_finds_nothing(each: Api) -> None:
    host, _, path = each.base_url.removeprefix("http://").partition("/")

    for name, text in TEXTS.items():
        answer = await send_raw(f"http://{host}", "GET", f"/{path}/winget/packageManifests/{text}")

        assert (answer.status, answer.body) == (204, b""), name


async def test_a_text_that_is_no_package_id_needs_the_client_token(enforcing: Api) -> None:
    host, _, path = enforcing.base_url.removeprefix("http://").partition("/")

    answer = await send_raw(f"http://{host}", "GET", f"/{path}/winget/packageManifests/a/b")

    check_winget_error(401, answer)


async def test_the_information_of_the_source_may_be_cached(each: Api) -> None:
    answer = await each.anonymous().call("GET", "winget", "information")
    assert answer.headers["Cache-Control"] == "private, max-age=300"
    assert answer.body["Data"]["ServerSupportedVersions"] == list(CONTRACTS)


def check_winget_error(status: int, answer: Answer) -> None:
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/json")
    message = answer.body["message"]
    assert message
    assert answer.body == {"code": status, "message": message, "ErrorCode": status, "ErrorMessage": message}
