"""From what is published to manifests: files of the kind that winget's community keeps, in folders as there."""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from deploy.winget_import.problems import ManifestRefused
from deploy.winget_import.reading import assemble, parse
from deploy.winget_import.versions import too_new

_LOGO_URL = re.compile(r"/icon/[^/]+/[0-9a-f]{64}\.png\?expires=")
WRITTEN_VERSIONS = (10, 12, 28)  # 1.x; a manifest has the first that knows all of it


@dataclass(frozen=True)
class Written:
    """A version's manifest, in the files of `folder`; or why there is none."""

    package_id: str
    version: str
    folder: Path
    problem: ManifestRefused | None = None


class Offers(Protocol):
    """What `Interface` says of all that winget is offered."""

    async def package_ids(self) -> Sequence[str]: ...

    async def manifest(self, package_id: str) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True)
class ManifestExport:
    """Writes below `folder` what winget is offered."""

    offers: Offers
    folder: Path

    async def run(self, package_ids: Sequence[str]) -> Sequence[Written]:
        """Write the manifests of these packages, or of all. Raises Problem, and OSError."""
        written: list[Written] = []
        for package_id in package_ids or await self.offers.package_ids():
            if data := await self.offers.manifest(package_id):
                written += await asyncio.to_thread(self._write, data)
            elif package_ids:
                problem = ManifestRefused("There is no such package, or nothing of it that winget is offered.")
                written.append(Written(package_id, "", self.folder, problem))
        return written

    def _write(self, data: Mapping[str, Any]) -> Sequence[Written]:
        return [self._write_version(data["PackageIdentifier"], version) for version in data["Versions"]]

    def _write_version(self, package_id: str, told: Mapping[str, Any]) -> Written:
        version = told["PackageVersion"]
        folder = self.folder / "manifests" / package_id[0].lower() / Path(*package_id.split(".")) / version
        try:
            files = dict(_files(package_id, told))
            assemble(folder, [parse(content) for content in files.values()])
            if version in {".", ".."}:
                raise ManifestRefused("PackageVersion: is no name that a folder could have")
        except ManifestRefused as problem:
            return Written(package_id, version, folder, problem)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return Written(package_id, version, folder)


def _files(package_id: str, told: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """The files of a version's manifest by their names."""
    minor = next(minor for minor in WRITTEN_VERSIONS if not any(too_new(told, minor)))
    default = _without_logo(told["DefaultLocale"])
    language = default["PackageLocale"]
    yield _file(package_id, "", "version", minor, told, {"DefaultLocale": language})
    yield _file(package_id, ".installer", "installer", minor, told, {"Installers": told["Installers"]})
    yield _file(package_id, f".locale.{language}", "defaultLocale", minor, told, default)
    for texts in told.get("Locales", ()):
        yield _file(package_id, f".locale.{texts['PackageLocale']}", "locale", minor, told, texts)


def _without_logo(texts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The texts without the icon that the server makes of the package's logo: its address expires."""
    icons = [icon for icon in texts.get("Icons", ()) if not _LOGO_URL.search(icon["IconUrl"])]
    others = {name: value for name, value in texts.items() if name != "Icons"}
    return {**others, "Icons": icons} if icons else others


def _file(
    package_id: str, suffix: str, kind: str, minor: int, told: Mapping[str, Any], says: Mapping[str, Any]
) -> tuple[str, bytes]:
    version = f"1.{minor}.0"
    fields = {
        "PackageIdentifier": package_id,
        "PackageVersion": told["PackageVersion"],
        **says,
        "ManifestType": kind,
        "ManifestVersion": version,
    }
    schema = f"# yaml-language-server: $schema=https://aka.ms/winget-manifest.{kind}.{version}.schema.json\n"
    text = yaml.dump(fields, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=2048)
    return f"{package_id}{suffix}.yaml", f"{schema}{text}".encode()
