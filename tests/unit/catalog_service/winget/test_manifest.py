"""Manifests in every contract: a client accepts each manifest and receives all its fields."""

from collections.abc import Mapping
from typing import Any

from catalog_service.catalog.reader import WholeEntry
from catalog_service.model.enumerations import Architecture, FileType, UpgradeBehavior
from catalog_service.model.versions import Dependencies, PackageDependency, Switches
from catalog_service.winget.contracts import Contract
from catalog_service.winget.manifest import manifest
from catalog_service.winget.requests import Query
from tests.support.samples.sample_forms import PACKAGE, VERSION
from tests.support.samples.winget_factories import make_entry, make_version
from tests.support.tables import each
from tests.support.winget.client import CONTRACTS
from tests.support.winget.rules import INSTALLER_MEMBERS, LOCALE_MEMBERS, check_manifest

URL = "https://example.com/x"
MINORS = [int(version.split(".")[1]) for version in CONTRACTS]
SAID_BY_VERSION: dict[str, Any] = {
    **VERSION,
    "portable_command_alias": [],  # The installer is no archive.
    "apps_and_features_entries": [{"display_name": "Editor", "display_version": "1.0.1", "installer_type": "BURN"}],
    "product_code": "{01234567-89AB-CDEF-0123-456789ABCDEF}",
    "upgrade_code": "{FEDCBA98-7654-3210-FEDC-BA9876543210}",
    "package_family_name": "Acme.Editor_8wekyb3d8bbwe",
    "upgrades": UpgradeBehavior.DENY,
    "switches": Switches(*(f"/{number}" for number in range(8))),
    "dependencies": Dependencies(("Net",), ("Lib",), ("Ext",), (PackageDependency("Acme.Other", "1.0"),)),
}


def version_for_client(entry: WholeEntry, minor: int) -> dict[str, Any] | None:
    """The version in an accepted manifest, as a client of the contract reads it."""
    response = manifest(entry, Contract(minor), Query(), lambda version: f"{URL}/{version.server_filename}")
    if response is None:
        return None
    check_manifest(response, minor)
    (version,) = response["Versions"]
    return dict(version)


def names(members: Mapping[int, str], minor: int) -> set[str]:
    return {name for since, members_listed in members.items() if since <= minor for name in members_listed.split()}


@each("minor", MINORS)
def test_a_contract_has_exactly_its_fields(minor: int) -> None:
    entry = make_entry("Acme.Editor", make_version(**SAID_BY_VERSION), description="Long.\nAnd longer.", **PACKAGE)
    version = version_for_client(entry, minor)
    assert version is not None
    default, (german, chinese), (installer,) = version["DefaultLocale"], version["Locales"], version["Installers"]
    assert default.keys() == names(LOCALE_MEMBERS, minor)
    left_out = {"InstallerIdentifier", "NestedInstallerType", "NestedInstallerFiles", "SignatureSha256"}
    left_out |= {"UpgradeBehavior"} if minor < 6 else set()
    left_out |= {"PackageFamilyName"} if minor < 4 else set()
    assert installer.keys() == names(INSTALLER_MEMBERS, minor) - left_out
    assert german.keys() == default.keys() - {"Moniker"}
    assert german.get("ReleaseNotes") == ("Schneller." if minor >= 1 else None)
    assert chinese == {"PackageLocale": "zh-Hant-TW", "ShortDescription": "編輯文字"}
    if minor >= 1:
        assert installer["Markets"] == {"ExcludedMarkets": ["US", "DE"]}
        assert installer["AppsAndFeaturesEntries"][0] == {
            "DisplayName": "Editor",
            "DisplayVersion": "1.0.1",
            "InstallerType": "burn",
            "UpgradeCode": "{FEDCBA98-7654-3210-FEDC-BA9876543210}",
        }
        codes = [code["InstallerReturnCode"] for code in installer["ExpectedReturnCodes"]]
        assert codes == ([1618, -2147483648] if minor >= 4 else [1618])
    if minor >= 4:
        assert installer["InstallationMetadata"]["Files"][0]["FileSha256"] == "0b" * 32
        assert installer["ExpectedReturnCodes"][1]["ReturnResponseUrl"] == "https://a.example/1"


def test_contract_1_28_has_the_configuration_by_the_client_s_names() -> None:
    version = version_for_client(make_entry("Acme.Editor", make_version(**SAID_BY_VERSION)), 28)

    assert version is not None
    assert version["Installers"][0]["DesiredStateConfiguration"] == {
        "PowerShell": [
            {
                "RepositoryUrl": "https://a.example/api/v2",
                "ModuleName": "Acme.Editor-Dsc",
                "Resources": [{"Name": "EditorSettings"}, {"Name": "Editor_Theme-2"}],
            }
        ],
        "DSCv3": {"Resources": [{"Type": "Acme.Editor.Core/Settings"}, {"Type": "Acme/Editor"}]},
    }


ARCHIVES = {
    "an MSI in a ZIP": ({"nested_type": FileType.MSI, "nested_paths": ("a/setup.msi",)}, 4),
    "portable programs in a ZIP": (
        {"nested_type": FileType.PORTABLE, "nested_paths": ("a.exe", "b.exe"), "portable_command_alias": ("a", "")},
        4,
    ),
    "fonts in a ZIP": ({"nested_type": FileType.FONT, "nested_paths": ("a.ttf", "b.ttf")}, 12),
}
KINDS = {
    **{name: ({"installer_type": FileType.ZIP, **said}, since) for name, (said, since) in ARCHIVES.items()},
    "a portable program": ({"installer_type": FileType.PORTABLE}, 4),
    "a font": ({"installer_type": FileType.FONT}, 12),
    "a packaged app": ({"installer_type": FileType.MSIX, "package_family_name": "Acme.Editor_8wekyb3d8bbwe"}, 0),
}


@each("minor", MINORS)
@each(("fields", "since"), KINDS.values(), ids=KINDS)
def test_an_installer_is_offered_to_clients_that_know_its_type(fields: dict[str, Any], since: int, minor: int) -> None:
    version = version_for_client(make_entry("Acme.Editor", make_version(**fields)), minor)
    assert (version is not None) is (minor >= since)
    if version and fields["installer_type"] is FileType.ZIP:
        nested = version["Installers"][0]["NestedInstallerFiles"]
        assert [nested_file["RelativeFilePath"] for nested_file in nested] == list(fields["nested_paths"])


@each("installer_type", list(FileType))
def test_only_packaged_apps_have_the_digest_of_their_signature(installer_type: FileType) -> None:
    archive: dict[str, Any] = {"nested_type": FileType.MSIX, "nested_paths": ("a.msix",)}
    nested = archive if installer_type is FileType.ZIP else {}
    version = make_version(installer_type=installer_type, signature_sha256="cd" * 32, **nested)
    manifest = version_for_client(make_entry("Acme.Editor", version), 12)
    assert manifest is not None
    digest = "CD" * 32 if installer_type in {FileType.MSIX, FileType.APPX} else None
    assert manifest["Installers"][0].get("SignatureSha256") == digest


def test_a_package_with_few_fields_has_the_required_ones() -> None:
    for description, short in (("", "Editor"), ("a" * 300, "a" * 255 + "…"), ("One.\nTwo.", "One.")):
        version = version_for_client(make_entry(description=description), 12)
        assert version is not None
        assert version["DefaultLocale"]["ShortDescription"] == short
        assert version["DefaultLocale"]["PackageLocale"] == "en-US"


def test_installers_of_one_version_are_listed_together() -> None:
    machines = [make_version(architecture=architecture) for architecture in (Architecture.X64, Architecture.ARM64)]
    twin = make_version(architecture=Architecture.X64)
    version = version_for_client(make_entry("Acme.Editor", *machines, twin), 12)
    assert version is not None
    assert {installer["Architecture"] for installer in version["Installers"]} == {"x64", "arm64"}
    assert len(version["Installers"]) == 2
