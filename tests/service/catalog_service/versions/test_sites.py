"""Callers in the networks of a site get addresses of installers at the site's host."""

from dataclasses import replace

import pytest
from yarl import URL

from common.auth.downloads import SITE_PERIOD
from common.auth.internal_tokens import Caller
from tests.support.factories import make_caller
from tests.support.services.catalog import EXTERNAL, Catalog

GRAZ, WIEN = "https://graz.example.com", "https://wien.example.com:8443"
PACKAGE = "Acme.Editor"


@pytest.fixture
async def caller(catalog: Catalog) -> Caller:
    """The administrator of a tenant with one version, at no site."""
    caller = make_caller(base_url="https://packages.example.com/acme")
    await catalog.add_package(caller, PACKAGE)
    await catalog.add_version(caller, PACKAGE)
    return caller


async def addresses(catalog: Catalog, caller: Caller) -> list[URL]:
    """The addresses in a package's versions, in one version, and in the winget manifest."""
    (version,) = await catalog.versions(caller, PACKAGE)
    one = await catalog.version(caller, version["UID"])
    manifest = (await catalog.call(caller, "GET", "winget/packageManifests", PACKAGE)).body["Data"]
    winget = manifest["Versions"][0]["Installers"][0]["InstallerUrl"]
    return [URL(address, encoded=True) for address in (version["INSTALLER_URL"], one["INSTALLER_URL"], winget)]


async def test_every_address_of_a_client_is_at_the_host_of_its_site(catalog: Catalog, caller: Caller) -> None:
    origins = {
        site_url: {str(address.origin()) for address in await addresses(catalog, replace(caller, site_url=site_url))}
        for site_url in (GRAZ, WIEN, "")
    }

    assert origins == {GRAZ: {GRAZ}, WIEN: {WIEN}, "": {"https://packages.example.com"}}


async def test_a_file_has_the_same_path_for_a_week_at_all_sites(catalog: Catalog, caller: Caller) -> None:
    found = [
        address
        for site_url in (GRAZ, WIEN, GRAZ)
        for address in await addresses(catalog, replace(caller, site_url=site_url))
    ]

    assert len({address.raw_path_qs for address in found}) == 1
    assert int(found[0].query["expires"]) % SITE_PERIOD == 0


async def test_users_of_the_dashboard_download_past_the_site(catalog: Catalog, caller: Caller) -> None:
    page = await catalog.call(replace(caller, site_url=GRAZ), "GET", "find_versions", PACKAGE)

    assert page.body["versions"][0]["download_url"].startswith(caller.base_url)


async def test_an_external_installer_keeps_its_address(catalog: Catalog) -> None:
    caller = make_caller(site_url=GRAZ)
    await catalog.add_package(caller, PACKAGE)
    assert (await catalog.post_version(caller, PACKAGE, **EXTERNAL)).status == 201

    assert {str(address) for address in await addresses(catalog, caller)} == {EXTERNAL["installer_url"]}


async def test_all_sites_share_one_catalog(catalog: Catalog, caller: Caller) -> None:
    whole = await catalog.call(caller, "POST", "get_packages")

    async with catalog.queries() as queries:
        for site_url in (GRAZ, WIEN):
            answer = await catalog.call(replace(caller, site_url=site_url), "POST", "get_packages")
            assert (answer.body, answer.headers["ETag"]) == (whole.body, whole.headers["ETag"])

    assert {query["ns"].partition(".")[2] for query in queries} == {"revisions"}
