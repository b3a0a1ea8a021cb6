"""Generated winget manifests. The same number always gives the same manifest."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.winget.manifest_fields import INSTALLER, TEXTS, Fields, known_fields

MINORS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 28)  # minor versions of the schemas


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
