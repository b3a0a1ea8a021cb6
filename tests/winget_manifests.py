"""Manifests of winget's as their authors write them, made by number: the same number gives the same manifest."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

MINORS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12)  # of the schemas that there are
GUID = "{%08X-89AB-CDEF-0123-456789ABCDEF}"

Fields = dict[str, Any]


@dataclass
class Made:
    """A manifest in files by their names, and its installers by theirs. A test changes what matters to it."""

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
        offered = {**self.root, "Installers": self.installers}
        if singleton:
            return {f"{name}.yaml": {**file, **self.texts, **offered, "ManifestType": "singleton"}}
        default = self.texts["PackageLocale"]
        found = {
            f"{name}.yaml": {**file, "DefaultLocale": default, "ManifestType": "version"},
            f"{name}.installer.yaml": {**file, **offered, "ManifestType": "installer"},
            f"{name}.locale.{default}.yaml": {**file, **self.texts, "ManifestType": "defaultLocale"},
        }
        for texts in self.locales:
            found[f"{name}.locale.{texts['PackageLocale']}.yaml"] = {**file, **texts, "ManifestType": "locale"}
        return found

    def write(self, tree: Path, installers: Path | None = None, *, singleton: bool = False) -> Path:
        """The manifest's folder in a tree like that of winget's community, its installers in another folder."""
        folder = tree.joinpath("manifests", self.package_id[0].lower(), *self.package_id.split("."), self.version)
        folder.mkdir(parents=True)
        for name, fields in self.files(singleton=singleton).items():
            (folder / name).write_text(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True), encoding="utf-8")
        for name, content in self.content.items():
            (installers or tree / "installers").mkdir(exist_ok=True)
            ((installers or tree / "installers") / name).write_bytes(content)
        return folder


def make(number: int = 0, minor: int = 10, **root: Any) -> Made:
    """A manifest with one installer, and little more than it must have; `root` is said for all its installers."""
    name = f"setup-{number}.exe"
    content = f"installer {number}".encode() * 20
    return Made(
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


def every_version(count: int) -> Iterator[Made]:
    """So many manifests, of every schema version in turn."""
    for number in range(count):
        yield make(number, MINORS[number % len(MINORS)])
