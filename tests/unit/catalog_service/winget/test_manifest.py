"""Manifests in every contract: a client accepts each manifest and receives all its fields."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from catalog_service.catalog.reader import WholeEntry
from catalog_service.model.enumerations import Architecture, FileType, UpgradeBehavior
from catalog_service.model.manifest import (
    Agreement,
    AppsAndFeaturesEntry,
    DesiredStateConfiguration,
    Documentation,
    DscV3,
    DscV3Resource,
    ExpectedReturnCode,
    Icon,
    InstalledFile,
    LocalReleaseTexts,
    LocalTexts,
    PackageManifest,
    PowerShellModule,
    PowerShellResource,
    ReturnResponse,
    VersionManifest,
)
from catalog_service.model.versions import Dependencies, PackageDependency, PackageVersion, Switches
from catalog_service.winget.contracts import Contract
from catalog_service.winget.manifest import manifest
from catalog_service.winget.requests import Query
from tests.support.samples.winget_factories import make_entry, make_version
from tests.support.tables import each
from tests.support.winget.client import CONTRACTS
from tests.support.winget.rules import INSTALLER_MEMBERS, LOCALE_MEMBERS, check_manifest

URL = "https://example.com/x"
MINORS = [int(version.split(".")[1]) for version in CONTRACTS]
SAID_BY_PACKAGE: dict[str, Any] = {
    **dict.fromkeys(
        ["publisher_url", "publisher_support_url", "privacy_url", "package_url", "license_url", "copyright_url"], URL
    ),
    "purchase_url": URL,
    "author": "Wile E.",
    "license": "MIT",
    "copyright": "(c) Acme",
    "short_description": "Edits.",
    "tags": ("text", "editor"),
    "agreements": (Agreement(agreement_label="Terms", agreement="Be kind.", agreement_url=URL),),
    "installation_notes": "Done.",
    "documentations": (Documentation(document_label="Manual", document_url=URL),),
    "icons": (Icon(icon_url=URL, icon_file_type="png", icon_sha256="ab" * 32),),
    "package_locale": "en-GB",
    "moniker": "edit",
    "locales": (LocalTexts(package_locale="de-DE", package_name="Bearbeiter", license="MIT"),),
}
SAID_BY_VERSION: dict[str, Any] = {
    "release_notes": "New.",
    "release_notes_url": URL,
    "locales": (LocalReleaseTexts(package_locale="de-DE", release_notes="Neu."),),
    "installer_locale": "en-GB",
    "platform": ("Windows.Desktop",),
    "minimum_os_version": "10.0.0.0",
    "install_modes": ("silent",),
    "installer_success_codes": (3010,),
    "expected_return_codes": (
        ExpectedReturnCode(installer_return_code=5, return_response=ReturnResponse.CUSTOM, return_response_url=URL),
        ExpectedReturnCode(installer_return_code=6, return_response=ReturnResponse.DISK_FULL),
    ),
    "commands": ("edit",),
    "protocols": ("edit",),
    "file_extensions": ("txt",),
    "capabilities": ("internetClient",),
    "restricted_capabilities": ("runFullTrust",),
    "signature_sha256": "cd" * 32,
    "excluded_markets": ("US",),
    "installer_aborts_terminal": True,
    "release_date": "2026-11-22",
    "install_location_required": True,
    "require_explicit_upgrade": True,
    "display_install_warnings": True,
    "elevation_requirement": "elevatesSelf",
    "unsupported_os_architectures": (Architecture.ARM,),
    "unsupported_arguments": ("log",),
    "apps_and_features_entries": (
        AppsAndFeaturesEntry(display_name="Editor", display_version="1.0.1", installer_type=FileType.BURN),
    ),
    "default_install_location": r"%ProgramFiles%\Editor",
    "installed_files": (InstalledFile(relative_file_path="edit.exe", file_sha256="ab" * 32),),
    "download_command_prohibited": True,
    "repair_behavior": "modify",
    "archive_binaries_depend_on_path": True,
    "desired_state_configuration": DesiredStateConfiguration(
        power_shell=(
            PowerShellModule(
                repository_url=URL, module_name="Acme.Dsc", resources=(PowerShellResource(name="Editor"),)
            ),
        ),
        dscv3=DscV3(resources=(DscV3Resource(type="Acme.Editor/Settings"),)),
    ),
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


def test_the_sample_package_has_every_field() -> None:
    assert SAID_BY_PACKAGE.keys() == PackageManifest.model_fields.keys()
    own = {member.name for member in fields(PackageVersion)}
    assert SAID_BY_VERSION.keys() - own == VersionManifest.model_fields.keys() - {
        "portable_command_alias",
        "allowed_markets",
    }


@each("minor", MINORS)
def test_a_contract_has_exactly_its_fields(minor: int) -> None:
    entry = make_entry(
        "Acme.Editor", make_version(**SAID_BY_VERSION), description="Long.\nAnd longer.", **SAID_BY_PACKAGE
    )
    version = version_for_client(entry, minor)
    assert version is not None
    default, (german,), (installer,) = version["DefaultLocale"], version["Locales"], version["Installers"]
    assert default.keys() == names(LOCALE_MEMBERS, minor)
    left_out = {"InstallerIdentifier", "NestedInstallerType", "NestedInstallerFiles", "SignatureSha256"}
    left_out |= {"UpgradeBehavior"} if minor < 6 else set()
    left_out |= {"PackageFamilyName"} if minor < 4 else set()
    assert installer.keys() == names(INSTALLER_MEMBERS, minor) - left_out
    assert german == {
        "PackageLocale": "de-DE",
        "PackageName": "Bearbeiter",
        "License": "MIT",
        **({"ReleaseNotes": "Neu."} if minor >= 1 else {}),
    }
    if minor >= 1:
        assert installer["Markets"] == {"ExcludedMarkets": ["US"]}
        assert installer["AppsAndFeaturesEntries"][0] == {
            "DisplayName": "Editor",
            "DisplayVersion": "1.0.1",
            "InstallerType": "burn",
            "UpgradeCode": "{FEDCBA98-7654-3210-FEDC-BA9876543210}",
        }
        codes = [code["InstallerReturnCode"] for code in installer["ExpectedReturnCodes"]]
        assert codes == ([5, 6] if minor >= 4 else [6])
    if minor >= 4:
        assert installer["InstallationMetadata"]["Files"] == [{"RelativeFilePath": "edit.exe", "FileSha256": "ab" * 32}]
        assert installer["ExpectedReturnCodes"][0]["ReturnResponseUrl"] == URL


def test_contract_1_28_has_the_configuration_by_the_client_s_names() -> None:
    version = version_for_client(make_entry("Acme.Editor", make_version(**SAID_BY_VERSION)), 28)

    assert version is not None
    assert version["Installers"][0]["DesiredStateConfiguration"] == {
        "PowerShell": [{"RepositoryUrl": URL, "ModuleName": "Acme.Dsc", "Resources": [{"Name": "Editor"}]}],
        "DSCv3": {"Resources": [{"Type": "Acme.Editor/Settings"}]},
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
