"""The files of a manifest in the newest version of winget's schema, and the version that brought each field and value.

Installers have the fields of the catalog's schema, and those that its forms name otherwise. Clients ignore fields that
are newer than a manifest's version, so a manifest must not have them.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from catalog_service.model import manifest
from catalog_service.model.manifest import WORD, LocalTexts
from catalog_service.model.manifest_fields import SHA256, Fields, LanguageTag, Listed, Records, Text, Url
from catalog_service.model.winget_rules import PACKAGE_ID, VERSION, WINDOWS_FEATURE
from catalog_service.winget.contracts import MEMBERS_SINCE

NestedType = Literal["msix", "msi", "appx", "exe", "inno", "nullsoft", "wix", "burn", "portable", "font"]
PackageId = Annotated[
    str,
    Text(128, pattern=PACKAGE_ID.pattern, like="two to eight parts of at most 32 characters, with dots between them"),
]
PackageVersion = Annotated[str, Text(128, pattern=VERSION.pattern, like='a version without \\ / : * ? " < > |')]
Sha256 = Annotated[str, SHA256]
SwitchText = Annotated[str, Text(512)]
LongText = Annotated[str, Text(2048)]
NEEDED = Listed(16, Text(128))
_NUMBER = r"(0|[1-9][0-9]{0,4})"
ManifestVersion = Annotated[str, Text(20, pattern=rf"{_NUMBER}(\.{_NUMBER}){{2}}", like="a version such as 1.10.0")]
NEWEST = 28  # of the versions 1.x
# Contracts have the same history, but there is no contract 1.2, and responses have no Authentication. Fields that only
# responses have do no harm here, because no schema has them.
_SINCE = {
    **MEMBERS_SINCE,
    "DisplayInstallWarnings": 2,
    "Documentations": 2,
    "InstallationNotes": 2,
    "PurchaseUrl": 2,
    "ReturnResponseUrl": 2,
    "UnsupportedArguments": 2,
    "Authentication": 10,
}
_VALUES_SINCE = {
    ("InstallerType", "portable"): 2,
    ("InstallerType", "font"): 12,
    ("NestedInstallerType", "font"): 12,
    ("UpgradeBehavior", "deny"): 6,
    ("ReturnResponse", "custom"): 2,
    ("ReturnResponse", "invalidParameter"): 2,
    ("ReturnResponse", "packageInUseByApplication"): 2,
    ("ReturnResponse", "systemNotSupported"): 2,
}


class NestedInstallerFile(Fields):
    relative_file_path: Annotated[str, Text(512)]
    portable_command_alias: Annotated[str, Text(40)] = ""


class InstallerSwitches(Fields):
    silent: SwitchText = ""
    silent_with_progress: SwitchText = ""
    interactive: SwitchText = ""
    install_location: SwitchText = ""
    log: SwitchText = ""
    upgrade: SwitchText = ""
    custom: LongText = ""
    repair: SwitchText = ""


class PackageDependency(Fields):
    package_identifier: PackageId
    minimum_version: PackageVersion = ""


class Dependencies(Fields):
    windows_features: Annotated[
        tuple[str, ...],
        Listed(16, Text(128, pattern=WINDOWS_FEATURE.pattern, like="a name of letters, digits, - and _")),
    ] = ()
    windows_libraries: Annotated[tuple[str, ...], NEEDED] = ()
    package_dependencies: Annotated[tuple[PackageDependency, ...], Records(16)] = ()
    external_dependencies: Annotated[tuple[str, ...], NEEDED] = ()


class Markets(Fields):
    allowed_markets: Annotated[tuple[str, ...], manifest.MARKETS] = ()
    excluded_markets: Annotated[tuple[str, ...], manifest.MARKETS] = ()


class InstallationMetadata(Fields):
    default_install_location: LongText = ""
    files: Annotated[tuple[manifest.InstalledFile, ...], Records(2048)] = ()


class MicrosoftEntraIdAuthenticationInfo(Fields):
    resource: Annotated[str, Text(512)] = ""
    scope: Annotated[str, Text(512)] = ""


class Authentication(Fields):
    authentication_type: Literal["none", "microsoftEntraId", "microsoftEntraIdForAzureBlobStorage"]
    microsoft_entra_id_authentication_info: MicrosoftEntraIdAuthenticationInfo | None = None


class InstallerFields(manifest.InstallerFields):
    """The fields of one installer, or of all installers of a file."""

    installer_type: NestedType | Literal["zip", "pwa"] | None = None
    nested_installer_type: NestedType | None = None
    nested_installer_files: Annotated[tuple[NestedInstallerFile, ...], Records(1024)] = ()
    scope: Literal["user", "machine"] | None = None
    installer_switches: InstallerSwitches | None = None
    upgrade_behavior: Literal["install", "uninstallPrevious", "deny"] | None = None
    dependencies: Dependencies | None = None
    package_family_name: Annotated[
        str, Text(255, pattern="[A-Za-z0-9][-.A-Za-z0-9]+_[A-Za-z0-9]{13}", like="a package family name")
    ] = ""
    product_code: Annotated[str, manifest.CODE] = ""
    markets: Markets | None = None
    installation_metadata: InstallationMetadata | None = None
    authentication: Authentication | None = None


class Installer(InstallerFields):
    architecture: Literal["x86", "x64", "arm", "arm64", "neutral"]
    installer_url: Url
    installer_sha256: Sha256
    signature_sha256: Sha256 = ""


class File(Fields):
    """The fields of every file."""

    package_identifier: PackageId
    package_version: PackageVersion
    manifest_version: ManifestVersion


class VersionFile(File):
    manifest_type: Literal["version"]
    default_locale: LanguageTag


class LocaleTexts(LocalTexts, manifest.ReleaseTexts):
    """The texts of a further language."""


class DefaultTexts(LocaleTexts):
    """The texts of the default language, some of them required."""

    publisher: Annotated[str, Text(256, least=2)]
    package_name: Annotated[str, Text(256, least=2)]
    license: Annotated[str, Text(512, least=3)]
    short_description: Annotated[str, Text(256, least=3)]
    moniker: Annotated[str, WORD] = ""


class LocaleFile(File, LocaleTexts):
    manifest_type: Literal["locale"]


class DefaultLocaleFile(File, DefaultTexts):
    manifest_type: Literal["defaultLocale"]


class InstallersFile(File, InstallerFields):
    channel: Annotated[str, Text(16)] = ""
    installers: Annotated[list[Installer], Field(min_length=1, max_length=1024)]


class InstallerFile(InstallersFile):
    manifest_type: Literal["installer"]


class SingletonFile(InstallersFile, DefaultTexts):
    manifest_type: Literal["singleton"]
    installers: Annotated[list[Installer], Field(min_length=1, max_length=1)]


def newer_fields(value: Any, minor: int, parent: str = "") -> Iterator[str]:
    """Yield a reason for each field and value that a manifest of the version 1.`minor` must not have."""
    for name, member in _members(value):
        path = f"{parent}[{name}]" if isinstance(name, int) else f"{parent}.{name}".strip(".")
        if (since := _SINCE.get(str(name), 0)) > minor:
            yield f"{path} is there from ManifestVersion 1.{since} on"
        if isinstance(member, str) and (since := _VALUES_SINCE.get((str(name), member), 0)) > minor:
            yield f"{path}: {member} is there from ManifestVersion 1.{since} on"
        yield from newer_fields(member, minor, path)


def _members(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)
