"""Generated winget manifests. The same number always gives the same manifest."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

MINORS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 28)  # minor versions of the schemas
GUID = "{%08X-89AB-CDEF-0123-456789ABCDEF}"

Fields = dict[str, Any]


@dataclass
class ManifestFiles:
    """The files of a manifest and its installers. A test changes the fields that matter to it."""

    package_id: str
    version: str
    minor: int
    texts: Fields
    root: Fields
    installers: list[Fields]
    locales: list[Fields] = field(default_factory=list)
    content: dict[str, bytes] = field(default_factory=dict)

    @property
    def _file(self) -> Fields:
        return {
            "PackageIdentifier": self.package_id,
            "PackageVersion": self.version,
            "ManifestVersion": f"1.{self.minor}.0",
        }

    def files(self, *, singleton: bool = False) -> Mapping[str, Fields]:
        file, name = self._file, self.package_id
        installer_fields = {**self.root, "Installers": self.installers}
        if singleton:
            return {f"{name}.yaml": {**file, **self.texts, **installer_fields, "ManifestType": "singleton"}}
        default = self.texts["PackageLocale"]
        files = {
            f"{name}.yaml": {**file, "DefaultLocale": default, "ManifestType": "version"},
            f"{name}.installer.yaml": {**file, **installer_fields, "ManifestType": "installer"},
            f"{name}.locale.{default}.yaml": {**file, **self.texts, "ManifestType": "defaultLocale"},
        }
        for texts in self.locales:
            files[f"{name}.locale.{texts['PackageLocale']}.yaml"] = {**file, **texts, "ManifestType": "locale"}
        return files

    def write(self, tree: Path, installers: Path | None = None, *, singleton: bool = False) -> Path:
        """Write the manifest into a tree like winget's community repository. Returns its folder."""
        folder = tree.joinpath("manifests", self.package_id[0].lower(), *self.package_id.split("."), self.version)
        folder.mkdir(parents=True)
        for name, fields in self.files(singleton=singleton).items():
            (folder / name).write_text(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True), encoding="utf-8")
        for name, content in self.content.items():
            (installers or tree / "installers").mkdir(exist_ok=True)
            ((installers or tree / "installers") / name).write_bytes(content)
        return folder


def make_manifest(number: int = 0, minor: int = 10, **root: Any) -> ManifestFiles:
    """A small manifest with one installer. `root` are fields for all its installers."""
    name = f"setup-{number}.exe"
    content = f"installer {number}".encode() * 20
    return ManifestFiles(
        package_id=f"Acme.App{number}",
        version=f"1.{number}",
        minor=minor,
        texts={
            "PackageLocale": "en-US",
            "Publisher": "Acme",
            "PackageName": f"App {number}",
            "License": "MIT",
            "ShortDescription": "Does what it says.",
        },
        root={"InstallerType": "exe", **root},
        installers=[installer(name, content)],
        content={name: content},
    )


def installer(name: str, content: bytes, architecture: str = "x64", **fields: Any) -> Fields:
    return {
        "Architecture": architecture,
        "InstallerUrl": f"https://download.example.com/{name}",
        "InstallerSha256": hashlib.sha256(content).hexdigest().upper(),
        **fields,
    }


# The fields that each schema version added, with sample values: of the default locale, and of installers.
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


def make_full_manifest(number: int, minor: int) -> ManifestFiles:
    """A manifest with all fields of its schema version."""
    manifest = make_manifest(number, minor, **known_fields(INSTALLER, minor))
    manifest.installers[0]["SignatureSha256"] = manifest.root.pop("SignatureSha256")
    manifest.texts.update(known_fields(TEXTS, minor))
    german = {name: value for name, value in manifest.texts.items() if name not in {"Moniker", "PackageName"}}
    manifest.locales = [{**german, "PackageLocale": "de-DE", "ShortDescription": "Tut, was es sagt."}]
    return manifest


def make_every_schema_version(count: int, *, of_each: int = 1) -> Iterator[ManifestFiles]:
    """`count` manifests of all schema versions in turn, `of_each` per package. Every third round has all fields."""
    for number in range(count):
        minor = MINORS[number % len(MINORS)]
        manifest = make_full_manifest(number, minor) if number // len(MINORS) % 3 == 0 else make_manifest(number, minor)
        manifest.package_id = f"Acme.App{number // of_each}"
        yield manifest
