"""The fields that each schema version of winget manifests added, with sample values."""

from collections.abc import Mapping
from typing import Any

Fields = dict[str, Any]

GUID = "{%08X-89AB-CDEF-0123-456789ABCDEF}"

# TEXTS are fields of the default locale, INSTALLER those of installers; the keys are minor versions.
TEXTS: Mapping[int, Fields] = {
    0: {
        "PublisherUrl": "https://acme.example.com",
        "PublisherSupportUrl": "https://acme.example.com/support",
        "PrivacyUrl": "https://acme.example.com/privacy",
        "Author": "Wile E. Coyote",
        "PackageUrl": "https://acme.example.com/app",
        "LicenseUrl": "https://acme.example.com/license",
        "Copyright": "© Acme",
        "CopyrightUrl": "https://acme.example.com/copyright",
        "Description": "The first line.\n\nThe second: größer.",
        "Moniker": "app",
        "Tags": ["trap", "road runner"],
    },
    1: {
        "Agreements": [{"AgreementLabel": "Terms", "Agreement": "Two\nlines"}],
        "ReleaseNotes": "- better\n- faster",
        "ReleaseNotesUrl": "https://acme.example.com/1",
    },
    2: {
        "PurchaseUrl": "https://acme.example.com/buy",
        "InstallationNotes": "Look up.",
        "Documentations": [{"DocumentLabel": "Wiki", "DocumentUrl": "https://acme.example.com/wiki"}],
    },
    5: {
        "Icons": [
            {
                "IconUrl": "https://acme.example.com/icon.png",
                "IconFileType": "png",
                "IconResolution": "64x64",
                "IconTheme": "dark",
                "IconSha256": "AB" * 32,
            }
        ]
    },
}
INSTALLER: Mapping[int, Fields] = {
    0: {
        "InstallerLocale": "de-DE",
        "Platform": ["Windows.Desktop"],
        "MinimumOSVersion": "10.0.17763.0",
        "Scope": "user",
        "InstallModes": ["interactive", "silent", "silentWithProgress"],
        "InstallerSwitches": {"Silent": "/S", "Log": "/LOG=<LOGPATH>", "Upgrade": "/UP", "Custom": "/a, /b"},
        "InstallerSuccessCodes": [3010, -5],
        "UpgradeBehavior": "uninstallPrevious",
        "Commands": ["app", "appctl"],
        "Protocols": ["acme"],
        "FileExtensions": ["trap"],
        "Dependencies": {
            "WindowsFeatures": ["NetFx3"],
            "WindowsLibraries": ["uap"],
            "PackageDependencies": [
                {"PackageIdentifier": "Acme.Runtime", "MinimumVersion": "1.10"},
                {"PackageIdentifier": "Acme.Fonts"},
            ],
            "ExternalDependencies": ["A road"],
        },
        "PackageFamilyName": "Acme.App_1234567890abc",
        "ProductCode": GUID % 1,
        "Capabilities": ["internetClient"],
        "RestrictedCapabilities": ["runFullTrust"],
        "SignatureSha256": "CD" * 32,
    },
    1: {
        "Markets": {"ExcludedMarkets": ["NO", "US"]},
        "InstallerAbortsTerminal": True,
        "ReleaseDate": "2026-11-22",
        "InstallLocationRequired": True,
        "RequireExplicitUpgrade": True,
        "UnsupportedOSArchitectures": ["arm"],
        "AppsAndFeaturesEntries": [
            {
                "DisplayName": "App (Acme)",
                "Publisher": "Acme Inc.",
                "DisplayVersion": "1.10",
                "ProductCode": "App_is1",
                "UpgradeCode": GUID % 2,
                "InstallerType": "inno",
            }
        ],
        "ElevationRequirement": "elevationRequired",
        "ExpectedReturnCodes": [{"InstallerReturnCode": 1618, "ReturnResponse": "installInProgress"}],
    },
    2: {"DisplayInstallWarnings": True, "UnsupportedArguments": ["log", "location"]},
    4: {
        "InstallationMetadata": {
            "DefaultInstallLocation": "%ProgramFiles%\\Acme",
            "Files": [
                {
                    "RelativeFilePath": "app.exe",
                    "FileSha256": "EF" * 32,
                    "FileType": "launch",
                    "InvocationParameter": "/x",
                    "DisplayName": "App",
                }
            ],
        }
    },
    6: {"DownloadCommandProhibited": True},
    7: {"RepairBehavior": "installer"},
    9: {"ArchiveBinariesDependOnPath": True},
    28: {
        "DesiredStateConfiguration": {
            "PowerShell": [
                {
                    "RepositoryUrl": "https://acme.example.com/api/v2",
                    "ModuleName": "Acme.AppDsc",
                    "Resources": [{"Name": "AppSettings"}],
                }
            ],
            "DSCv3": {"Resources": [{"Type": "Acme.App/Settings"}]},
        }
    },
}


def known_fields(table: Mapping[int, Fields], minor: int) -> Fields:
    """The fields of a schema version."""
    return {name: value for since, fields in table.items() if since <= minor for name, value in fields.items()}
