"""winget's manifest schema, shared by forms, documents, import and export. Every field is optional.

The manifest of a package has its texts, the one of a version its installer, release notes and configuration.
"""

from enum import StrEnum
from typing import Annotated, Literal, get_args

from catalog_service.model.enumerations import Architecture, FileType
from catalog_service.model.manifest_fields import (
    SHA256,
    Aliases,
    Choice,
    Day,
    Fields,
    Flag,
    LanguageTag,
    Listed,
    OptionalText,
    Records,
    ReturnCode,
    Text,
    Url,
)

WORD = Text(40)
IconFileType = Literal["png", "jpeg", "ico"]
IconTheme = Literal["default", "light", "dark", "highContrast"]


class Agreement(Fields):
    """A text that the user must accept before an installation."""

    agreement_label: Annotated[str, Text(100)] = ""
    agreement: Annotated[str, Text(10_000, lines=True)] = ""
    agreement_url: Url = ""


class Documentation(Fields):
    document_label: Annotated[str, Text(100)] = ""
    document_url: Url = ""


class Icon(Fields):
    """An image at an address; the package's logo is another."""

    icon_url: Url
    icon_file_type: Annotated[IconFileType, Choice(get_args(IconFileType))]
    icon_resolution: Annotated[
        str,
        Text(
            7,
            pattern=r"custom|(16|20|24|30|32|36|40|48|60|64|72|80|96|256)x\1",
            like="custom, or a resolution such as 64x64",
        ),
    ] = ""
    icon_theme: Annotated[IconTheme | None, Choice(get_args(IconTheme))] = None
    icon_sha256: Annotated[str, SHA256] = ""


class Texts(Fields):
    """The texts that every language may have."""

    publisher_url: Url = ""
    publisher_support_url: Url = ""
    privacy_url: Url = ""
    author: Annotated[str, Text(256, least=2)] = ""
    package_url: Url = ""
    license: Annotated[str, Text(512, least=3)] = ""
    license_url: Url = ""
    copyright: Annotated[str, Text(512, least=3)] = ""
    copyright_url: Url = ""
    short_description: Annotated[str, Text(256, least=3)] = ""
    tags: Annotated[tuple[str, ...], Listed(16, WORD)] = ()
    agreements: Annotated[tuple[Agreement, ...], Records(128)] = ()
    purchase_url: Url = ""
    installation_notes: Annotated[str, Text(10_000, lines=True)] = ""
    documentations: Annotated[tuple[Documentation, ...], Records(256)] = ()
    icons: Annotated[tuple[Icon, ...], Records(1024)] = ()


class LocalTexts(Texts):
    """The texts of a further language; missing ones are as in the default language."""

    package_locale: LanguageTag
    publisher: Annotated[str, Text(256, least=2)] = ""
    package_name: Annotated[str, Text(256, least=2)] = ""
    description: Annotated[str, Text(10_000, least=3, lines=True)] = ""


class PackageManifest(Texts):
    """The texts of a package beside its name, publisher and description, all in the default language.

    The default language is `package_locale`, or `en-US` if that is empty. `locales` are the further ones.
    """

    package_locale: LanguageTag = ""
    moniker: Annotated[str, WORD] = ""
    locales: Annotated[tuple[LocalTexts, ...], Records(256)] = ()


CODE = Text(255)  # a product or upgrade code: a GUID for MSI, and whatever names the entry for others
MARKETS = Listed(256, Text(2, pattern="[A-Z]{2}", like="two capital letters, such as US"))
Platform = Literal["Windows.Desktop", "Windows.Universal"]
InstallMode = Literal["interactive", "silent", "silentWithProgress"]
Elevation = Literal["elevationRequired", "elevationProhibited", "elevatesSelf"]
UnsupportedArgument = Literal["log", "location"]
RepairBehavior = Literal["modify", "uninstaller", "installer"]
InstalledFileType = Literal["launch", "uninstall", "other"]
_PART = r"(0|[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
MODULE_NAME = Text(100, pattern=r"[A-Za-z0-9_]+([.-][A-Za-z0-9_]+)*", like="the name of a PowerShell module")
RESOURCE_NAME = Text(100, pattern="[A-Za-z][A-Za-z0-9_-]*", like="the name of a resource")
RESOURCE_TYPE = Text(
    256, pattern=r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+){0,2}/[A-Za-z0-9_]+", like="a type such as Acme.Editor/Settings"
)


class ReturnResponse(StrEnum):
    """The meaning of an exit code."""

    PACKAGE_IN_USE = "packageInUse"
    PACKAGE_IN_USE_BY_APPLICATION = "packageInUseByApplication"
    INSTALL_IN_PROGRESS = "installInProgress"
    FILE_IN_USE = "fileInUse"
    MISSING_DEPENDENCY = "missingDependency"
    DISK_FULL = "diskFull"
    INSUFFICIENT_MEMORY = "insufficientMemory"
    INVALID_PARAMETER = "invalidParameter"
    NO_NETWORK = "noNetwork"
    CONTACT_SUPPORT = "contactSupport"
    REBOOT_REQUIRED_TO_FINISH = "rebootRequiredToFinish"
    REBOOT_REQUIRED_FOR_INSTALL = "rebootRequiredForInstall"
    REBOOT_INITIATED = "rebootInitiated"
    CANCELLED_BY_USER = "cancelledByUser"
    ALREADY_INSTALLED = "alreadyInstalled"
    DOWNGRADE = "downgrade"
    BLOCKED_BY_POLICY = "blockedByPolicy"
    SYSTEM_NOT_SUPPORTED = "systemNotSupported"
    CUSTOM = "custom"


class ExpectedReturnCode(Fields):
    installer_return_code: Annotated[int, ReturnCode()]
    return_response: Annotated[ReturnResponse, Choice(ReturnResponse)]
    return_response_url: Url = ""


class AppsAndFeaturesEntry(Fields):
    """An entry of Apps and Features, where it differs from the fields of the version."""

    display_name: Annotated[str, Text(256)] = ""
    publisher: Annotated[str, Text(256)] = ""
    display_version: Annotated[str, Text(128, pattern="[^<>].*", like="a version that does not begin with < or >")] = ""
    product_code: Annotated[str, CODE] = ""
    upgrade_code: Annotated[str, CODE] = ""
    installer_type: Annotated[FileType | None, Choice(FileType)] = None


class InstalledFile(Fields):
    """A file below the folder of an installation."""

    relative_file_path: Annotated[str, Text(2048)]
    file_sha256: Annotated[str, SHA256] = ""
    file_type: Annotated[InstalledFileType | None, Choice(get_args(InstalledFileType))] = None
    invocation_parameter: Annotated[str, Text(2048)] = ""
    display_name: Annotated[str, Text(256)] = ""


class PowerShellResource(Fields):
    name: Annotated[str, RESOURCE_NAME]


class PowerShellModule(Fields):
    """A module in a PowerShell repository, and its resources."""

    repository_url: Url
    module_name: Annotated[str, MODULE_NAME]
    resources: Annotated[tuple[PowerShellResource, ...], Records(64)]


class DscV3Resource(Fields):
    type: Annotated[str, RESOURCE_TYPE]


class DscV3(Fields):
    """Resources of the package itself, for version 3 of DSC."""

    resources: Annotated[tuple[DscV3Resource, ...], Records(128)]


class DesiredStateConfiguration(Fields):
    """The resources of PowerShell modules, of DSC version 3, or both."""

    power_shell: Annotated[tuple[PowerShellModule, ...], Records(16)] = ()
    dscv3: DscV3 | None = None


class ReleaseTexts(Fields):
    release_notes: Annotated[str, Text(10_000, lines=True)] = ""
    release_notes_url: Url = ""


class LocalReleaseTexts(ReleaseTexts):
    """Release notes in a further language."""

    package_locale: LanguageTag


class InstallerFields(Fields):
    """The fields of one installer, or of all installers of a manifest file. `release_date` is such as `2026-11-22`."""

    installer_locale: LanguageTag = ""
    platform: Annotated[tuple[Platform, ...], Listed(2, Choice(get_args(Platform)))] = ()
    minimum_os_version: Annotated[
        str, Text(23, pattern=rf"{_PART}(\.{_PART}){{0,3}}", like="one to four numbers from 0 to 65535, with dots")
    ] = ""
    install_modes: Annotated[tuple[InstallMode, ...], Listed(3, Choice(get_args(InstallMode)))] = ()
    installer_success_codes: Annotated[tuple[int, ...], Listed(16, ReturnCode())] = ()
    expected_return_codes: Annotated[tuple[ExpectedReturnCode, ...], Records(128)] = ()
    commands: Annotated[tuple[str, ...], Listed(16, Text(40))] = ()
    protocols: Annotated[tuple[str, ...], Listed(64, Text(2048))] = ()
    file_extensions: Annotated[
        tuple[str, ...], Listed(512, Text(64, pattern=r'[^\\/:*?"<>|\x01-\x1f]+', like="an ending such as html"))
    ] = ()
    capabilities: Annotated[tuple[str, ...], Listed(1000, Text(40))] = ()
    restricted_capabilities: Annotated[tuple[str, ...], Listed(1000, Text(40))] = ()
    installer_aborts_terminal: Annotated[bool, Flag()] = False
    release_date: Annotated[str, Day()] = ""
    install_location_required: Annotated[bool, Flag()] = False
    require_explicit_upgrade: Annotated[bool, Flag()] = False
    display_install_warnings: Annotated[bool, Flag()] = False
    elevation_requirement: Annotated[Elevation | None, Choice(get_args(Elevation))] = None
    unsupported_os_architectures: Annotated[tuple[Architecture, ...], Listed(4, Choice(Architecture))] = ()
    unsupported_arguments: Annotated[
        tuple[UnsupportedArgument, ...], Listed(2, Choice(get_args(UnsupportedArgument)))
    ] = ()
    apps_and_features_entries: Annotated[tuple[AppsAndFeaturesEntry, ...], Records(128)] = ()
    download_command_prohibited: Annotated[bool, Flag()] = False
    repair_behavior: Annotated[RepairBehavior | None, Choice(get_args(RepairBehavior))] = None
    archive_binaries_depend_on_path: Annotated[bool, Flag()] = False
    desired_state_configuration: DesiredStateConfiguration | None = None


class VersionManifest(InstallerFields, ReleaseTexts):
    """The fields of a version beside those of the specification.

    `portable_command_alias` is empty, or has one, possibly empty, for each of the version's `nested_paths`.
    `release_notes` are in the package's default language, and `locales` have them in further ones.
    """

    locales: Annotated[tuple[LocalReleaseTexts, ...], Records(256)] = ()
    portable_command_alias: Annotated[
        tuple[str, ...],
        Aliases(1024, OptionalText(40, pattern=r'(?!\.{1,2}$)[^\\/:*?"<>|]+', like="the name of a command")),
    ] = ()
    signature_sha256: Annotated[str, SHA256] = ""
    allowed_markets: Annotated[tuple[str, ...], MARKETS] = ()
    excluded_markets: Annotated[tuple[str, ...], MARKETS] = ()
    default_install_location: Annotated[str, Text(2048)] = ""
    installed_files: Annotated[tuple[InstalledFile, ...], Records(2048)] = ()
