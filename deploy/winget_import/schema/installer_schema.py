"""What an installer may say, as the newest schema has it."""

from typing import Annotated, Literal

from pydantic import Field

from deploy.winget_import.schema.values import (
    Architecture,
    Code,
    Day,
    FamilyName,
    Fields,
    FileExtension,
    Flag,
    InstallerType,
    LanguageTag,
    Market,
    NestedType,
    OsArchitecture,
    OsVersion,
    PackageId,
    PackageVersion,
    ReturnCode,
    Sha256,
    Url,
    WindowsFeature,
    Word,
    like,
    many,
    some,
    text,
)

Needed = Annotated[list[Annotated[str, text(128)]], some(16)]


class NestedInstallerFile(Fields):
    relative_file_path: Annotated[str, text(512)]
    portable_command_alias: Word | None = None


class InstallerSwitches(Fields):
    silent: Annotated[str, text(512)] | None = None
    silent_with_progress: Annotated[str, text(512)] | None = None
    interactive: Annotated[str, text(512)] | None = None
    install_location: Annotated[str, text(512)] | None = None
    log: Annotated[str, text(512)] | None = None
    upgrade: Annotated[str, text(512)] | None = None
    custom: Annotated[str, text(2048)] | None = None
    repair: Annotated[str, text(512)] | None = None


class ExpectedReturnCode(Fields):
    installer_return_code: ReturnCode
    return_response: Literal[
        "packageInUse",
        "packageInUseByApplication",
        "installInProgress",
        "fileInUse",
        "missingDependency",
        "diskFull",
        "insufficientMemory",
        "invalidParameter",
        "noNetwork",
        "contactSupport",
        "rebootRequiredToFinish",
        "rebootRequiredForInstall",
        "rebootInitiated",
        "cancelledByUser",
        "alreadyInstalled",
        "downgrade",
        "blockedByPolicy",
        "systemNotSupported",
        "custom",
    ]
    return_response_url: Url | None = None


class PackageDependency(Fields):
    package_identifier: PackageId
    minimum_version: PackageVersion | None = None


class Dependencies(Fields):
    windows_features: Annotated[list[WindowsFeature], some(16)] | None = None
    windows_libraries: Needed | None = None
    package_dependencies: Annotated[list[PackageDependency], some(16)] | None = None
    external_dependencies: Needed | None = None


class Markets(Fields):
    allowed_markets: Annotated[list[Market], some(256)] | None = None
    excluded_markets: Annotated[list[Market], some(256)] | None = None


class AppsAndFeaturesEntry(Fields):
    display_name: Annotated[str, text(256)] | None = None
    publisher: Annotated[str, text(256)] | None = None
    display_version: Annotated[str, text(128)] | None = None
    product_code: Code | None = None
    upgrade_code: Code | None = None
    installer_type: InstallerType | None = None


class InstalledFile(Fields):
    relative_file_path: Annotated[str, text(2048)]
    file_sha256: Sha256 | None = None
    file_type: Literal["launch", "uninstall", "other"] | None = None
    invocation_parameter: Annotated[str, text(2048)] | None = None
    display_name: Annotated[str, text(256)] | None = None


class InstallationMetadata(Fields):
    default_install_location: Annotated[str, text(2048)] | None = None
    files: Annotated[list[InstalledFile], some(2048)] | None = None


class MicrosoftEntraIdAuthenticationInfo(Fields):
    resource: Annotated[str, text(512)] | None = None
    scope: Annotated[str, text(512)] | None = None


class Authentication(Fields):
    authentication_type: Literal["none", "microsoftEntraId", "microsoftEntraIdForAzureBlobStorage"]
    microsoft_entra_id_authentication_info: MicrosoftEntraIdAuthenticationInfo | None = None


class PowerShellResource(Fields):
    name: Annotated[str, like("[A-Za-z][A-Za-z0-9_-]*", "the name of a resource", 100)]


class PowerShellModule(Fields):
    repository_url: Url
    module_name: Annotated[str, like(r"[A-Za-z0-9_]+([.-][A-Za-z0-9_]+)*", "the name of a PowerShell module", 100)]
    resources: Annotated[list[PowerShellResource], many(64)]


class DscV3Resource(Fields):
    type: Annotated[
        str, like(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+){0,2}/[A-Za-z0-9_]+", "a type such as Acme.Editor/Settings", 256)
    ]


class DscV3(Fields):
    resources: Annotated[list[DscV3Resource], many(128)]


class DesiredStateConfiguration(Fields):
    power_shell: Annotated[list[PowerShellModule], some(16)] | None = None
    dscv3: DscV3 | None = None


class InstallerFields(Fields):
    """What an installer says, or the manifest for all of them."""

    installer_locale: LanguageTag | None = None
    platform: Annotated[list[Literal["Windows.Desktop", "Windows.Universal"]], some(2)] | None = None
    minimum_os_version: Annotated[OsVersion | None, Field(alias="MinimumOSVersion")] = None
    installer_type: InstallerType | None = None
    nested_installer_type: NestedType | None = None
    nested_installer_files: Annotated[list[NestedInstallerFile], many(1024)] | None = None
    scope: Literal["user", "machine"] | None = None
    install_modes: Annotated[list[Literal["interactive", "silent", "silentWithProgress"]], some(3)] | None = None
    installer_switches: InstallerSwitches | None = None
    installer_success_codes: Annotated[list[ReturnCode], some(16)] | None = None
    expected_return_codes: Annotated[list[ExpectedReturnCode], many(128)] | None = None
    upgrade_behavior: Literal["install", "uninstallPrevious", "deny"] | None = None
    commands: Annotated[list[Word], some(16)] | None = None
    protocols: Annotated[list[Annotated[str, text(2048)]], some(64)] | None = None
    file_extensions: Annotated[list[FileExtension], some(512)] | None = None
    dependencies: Dependencies | None = None
    package_family_name: FamilyName | None = None
    product_code: Code | None = None
    capabilities: Annotated[list[Word], some(1000)] | None = None
    restricted_capabilities: Annotated[list[Word], some(1000)] | None = None
    markets: Markets | None = None
    installer_aborts_terminal: Flag | None = None
    release_date: Day | None = None
    install_location_required: Flag | None = None
    require_explicit_upgrade: Flag | None = None
    display_install_warnings: Flag | None = None
    unsupported_os_architectures: Annotated[list[OsArchitecture], some(4)] | None = None
    unsupported_arguments: Annotated[list[Literal["log", "location"]], some(2)] | None = None
    apps_and_features_entries: Annotated[list[AppsAndFeaturesEntry], some(128)] | None = None
    elevation_requirement: Literal["elevationRequired", "elevationProhibited", "elevatesSelf"] | None = None
    installation_metadata: InstallationMetadata | None = None
    download_command_prohibited: Flag | None = None
    repair_behavior: Literal["modify", "uninstaller", "installer"] | None = None
    archive_binaries_depend_on_path: Flag | None = None
    authentication: Authentication | None = None
    desired_state_configuration: DesiredStateConfiguration | None = None


class Installer(InstallerFields):
    architecture: Architecture
    installer_url: Url
    installer_sha256: Sha256
    signature_sha256: Sha256 | None = None
