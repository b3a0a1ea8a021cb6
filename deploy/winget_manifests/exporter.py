"""Writes manifests of the published packages, in files and folders as winget's community repository has them."""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from deploy.winget_manifests.manifest import ManifestRefused, assemble_manifest, parse_file
from deploy.winget_manifests.schema import newer_fields

_LOGO_URL = re.compile(r"/icon/[^/]+/[0-9a-f]{64}\.png\?expires=")
WRITTEN_VERSIONS = (10, 12, 28)  # 1.x; a manifest gets the first that has all its fields


@dataclass(frozen=True)
class ExportedManifest:
    """The manifest of a version in the files of `folder`, or the problem that prevented it."""

    package_id: str
    version: str
    folder: Path
    problem: ManifestRefused | None = None


class PublishedManifests(Protocol):
    """The manifests that `RetryingClient` reads."""

    async def package_ids(self) -> Sequence[str]: ...

    async def manifest(self, package_id: str) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True)
class ManifestExport:
    """Writes manifests below `folder`."""

    published: PublishedManifests
    folder: Path

    async def run(self, package_ids: Sequence[str]) -> Sequence[ExportedManifest]:
        """Write the manifests of these packages, or of all. Raises Problem, and OSError."""
        written: list[ExportedManifest] = []
        for package_id in package_ids or await self.published.package_ids():
            if data := await self.published.manifest(package_id):
                package = data["PackageIdentifier"]
                written += [
                    await asyncio.to_thread(self._write_version, package, version) for version in data["Versions"]
                ]
            elif package_ids:
                problem = ManifestRefused("There is no such package, or nothing of it that winget is offered.")
                written.append(ExportedManifest(package_id, "", self.folder, problem))
        return written

    def _write_version(self, package_id: str, manifest: Mapping[str, Any]) -> ExportedManifest:
        version = manifest["PackageVersion"]
        folder = self.folder / "manifests" / package_id[0].lower() / Path(*package_id.split(".")) / version
        try:
            files = dict(_files(package_id, manifest))
            assemble_manifest(folder, [parse_file(content) for content in files.values()])
            if version in {".", ".."}:
                raise ManifestRefused("PackageVersion: is no name that a folder could have")
        except ManifestRefused as problem:
            return ExportedManifest(package_id, version, folder, problem)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return ExportedManifest(package_id, version, folder)


def _files(package_id: str, manifest: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of a manifest's files."""
    minor = next(minor for minor in WRITTEN_VERSIONS if not any(newer_fields(manifest, minor)))
    default = _without_logo(manifest["DefaultLocale"])
    language = default["PackageLocale"]
    parts = [
        ("", "version", {"DefaultLocale": language}),
        (".installer", "installer", {"Installers": manifest["Installers"]}),
        (f".locale.{language}", "defaultLocale", default),
        *((f".locale.{texts['PackageLocale']}", "locale", texts) for texts in manifest.get("Locales", ())),
    ]
    for suffix, kind, fields in parts:
        content = {
            "PackageIdentifier": package_id,
            "PackageVersion": manifest["PackageVersion"],
            **fields,
            "ManifestType": kind,
            "ManifestVersion": f"1.{minor}.0",
        }
        schema = f"# yaml-language-server: $schema=https://aka.ms/winget-manifest.{kind}.1.{minor}.0.schema.json\n"
        text = yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=2048)
        yield f"{package_id}{suffix}.yaml", f"{schema}{text}".encode()


def _without_logo(texts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the texts without the icon of the package's logo, because its address expires."""
    icons = [icon for icon in texts.get("Icons", ()) if not _LOGO_URL.search(icon["IconUrl"])]
    others = {name: value for name, value in texts.items() if name != "Icons"}
    return {**others, "Icons": icons} if icons else others
