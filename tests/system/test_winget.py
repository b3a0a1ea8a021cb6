"""Windows' own winget with a tenant as its source, in both deployments, as `tests.winget_client` knows it."""

from typing import Any

import pytest

from common.caller import Deployment
from tests.system.services import Api
from tests.system.stories import add_package, package_id, publish
from tests.winget_client import KNOWN, Installed, WingetClient

CODE = "{%08X-89AB-CDEF-0123-456789ABCDEF}"


def client_of(api: Api, **options: Any) -> WingetClient:
    return WingetClient(api.session, f"{api.base_url}/winget", **options)


async def test_a_source_is_added_listed_searched_shown_and_installed_from(either: Api) -> None:
    winget, name = client_of(either), package_id()
    await add_package(either, name, package_name="Roadrunner Trap", package_publisher="Acme")
    older = await publish(either, name, "1.9")
    newer = await publish(either, name, "1.10", switch_Silent="/S")
    told = await winget.add()
    assert (told["SourceIdentifier"], winget.contract) == (f"pkgrepo-{either.tenant_id}", "1.12.0")
    assert name in {hit.package_id for hit in await winget.search()}
    (found,) = await winget.search(name.removeprefix("Acme."))
    assert (found.package_id, found.name, found.publisher) == (name, "Roadrunner Trap", "Acme")
    assert [version["PackageVersion"] for version in found.versions] == ["1.10", "1.9"]
    shown = await winget.show(name.upper())
    assert shown["PackageVersion"] == "1.10"
    assert shown["Installers"][0]["InstallerSwitches"] == {"Silent": "/S"}
    assert await winget.install(name) == newer.content
    assert await winget.install(name, "1.9") == older.content


@pytest.mark.parametrize("version", KNOWN)
async def test_every_client_gets_what_its_contract_knows(each: Api, version: str) -> None:
    winget, name = client_of(each, versions=[version]), package_id()
    await add_package(each, name)
    published = await publish(each, name, upgrades="deny", upgradecode=CODE % 7, switch_Repair="/repair")
    await winget.add()
    assert winget.contract == version
    installer = (await winget.show(name))["Installers"][0]
    minor = int(version.split(".")[1])
    assert ("AppsAndFeaturesEntries" in installer) is (minor >= 1)
    assert ("UpgradeBehavior" in installer) is (minor >= 6)
    assert ("InstallerSwitches" in installer and "Repair" in installer["InstallerSwitches"]) is (minor >= 7)
    (hit,) = await winget.search(filters=[("PackageIdentifier", "StartsWith", name)])
    assert ("UpgradeCodes" in hit.versions[0]) is (minor >= 4)
    assert await winget.install(name) == published.content


async def test_an_installed_program_is_upgraded_by_its_code_or_by_its_name(either: Api) -> None:
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
    assert await winget.upgrade(Installed("Nothing that we have", "1.0")) is None


async def test_the_short_address_of_a_single_tenant_is_the_same_source(single: Api) -> None:
    name = package_id()
    await add_package(single, name)
    published = await publish(single, name)
    winget = WingetClient(single.session, single.base_url.replace("/client/api", "/api"))
    assert [hit.package_id for hit in await winget.search(name)] == [name]
    assert await winget.install(name) == published.content
    assert single.deployment is Deployment.SINGLE
