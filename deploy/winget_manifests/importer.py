"""Publishes manifests package by package, several at once, and reports a row for each manifest and installer.

Existing versions are left unchanged.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any

from catalog_service.model.versions import VersionOrder
from common.errors import Problem
from deploy.publish.client import RetryingClient
from deploy.publish.model import Installer, NewPackage, NotPublished, Published, is_transient
from deploy.publish.publisher import Catalog
from deploy.winget_manifests.forms import ManifestInstaller, manifest_installers, new_package
from deploy.winget_manifests.manifest import Manifest, ManifestRefused, RefusedManifest
from deploy.winget_manifests.sources import InstallerSources

AnyManifest = Manifest | RefusedManifest
Result = Published | NotPublished
# Publishes the installers of a package, which it adds if needed. The results are in their order.
Publish = Callable[[str, NewPackage, Sequence[Installer]], Awaitable[Sequence[Result]]]


class Outcome(StrEnum):
    PUBLISHED = "published"
    EXISTING = "there"
    NEW = "new"  # would be published without --dry-run
    REFUSED = "refused"


@dataclass(frozen=True)
class Row:
    """An installer, or a refused manifest, which has none. `size` is in bytes, 0 for a file that was not read."""

    manifest: Path
    outcome: Outcome
    package_id: str = ""
    version: str = ""
    installer: Installer | None = None
    uid: str = ""
    size: int = 0
    notes: Sequence[str] = ()
    problem: Problem | None = None

    @property
    def label(self) -> str:
        """The manifest, and which installer of it."""
        architecture = self.installer.architecture if self.installer else ""
        installer = " ".join(filter(None, (self.package_id, self.version, architecture)))
        return f"{self.manifest}: {installer}" if installer else str(self.manifest)

    def document(self) -> dict[str, Any]:
        """Return the row as `--json` shows it, without empty fields."""
        problem = self.problem
        fields = {
            "manifest": str(self.manifest),
            "outcome": self.outcome,
            "package": self.package_id,
            "version": self.version,
            **{name: getattr(self.installer, name, "") for name in ("architecture", "url", "sha256")},
            "uid": self.uid,
            "size": self.size,
            "notes": list(self.notes),
            "error": {"code": problem.code, "detail": problem.detail} if problem else None,
        }
        return {name: value for name, value in fields.items() if value}


def of_refused(refused: RefusedManifest) -> Row:
    return Row(refused.path, Outcome.REFUSED, refused.package_id, refused.version, problem=refused)


def of_result(manifest: Manifest, source: ManifestInstaller, result: Published | NotPublished) -> Row:
    installer = source.installer
    row = Row(manifest.path, Outcome.NEW, installer.package_id, installer.version, installer, notes=source.notes)
    if isinstance(result, NotPublished):
        return replace(row, outcome=Outcome.REFUSED, problem=result.problem)
    if not result.uid:
        return row
    outcome = Outcome.PUBLISHED if result.created else Outcome.EXISTING
    return replace(row, outcome=outcome, uid=result.uid, size=result.size)


def summary(rows: Sequence[Row]) -> dict[str, int]:
    """Count the rows of each outcome."""
    return {outcome.value: sum(row.outcome is outcome for row in rows) for outcome in Outcome}


@dataclass(frozen=True)
class DryRun:
    """Returns the results that publishing would have, and changes nothing. A new version has no UID."""

    client: RetryingClient
    sources: InstallerSources

    async def publish(self, package_id: str, _: NewPackage, installers: Sequence[Installer]) -> Sequence[Result]:
        versions = await self.client.versions(package_id) or ()
        catalog = Catalog(versions, await self.client.one_installer_a_version())
        return [await self._result(catalog, installer) for installer in installers]

    async def _result(self, catalog: Catalog, installer: Installer) -> Result:
        try:
            uid = catalog.uid_of(installer, installer.sha256)
            if not uid and not installer.stays:
                await self.sources.find(installer)
        except Problem as problem:
            return NotPublished(installer, problem)
        return Published(installer, uid or "", installer.sha256, 0, 0, created=not uid)


class ManifestImport:
    """Publishes manifests. `rows` is the report so far; `gave_up` is the problem that ended the import early."""

    def __init__(
        self, publish: Publish, *, one_installer_a_version: bool, at_once: int, keep_addresses: bool = False
    ) -> None:
        self.rows: list[Row] = []
        self.gave_up: Problem | None = None
        self._publish_installers = publish
        self._one_installer_a_version = one_installer_a_version
        self._keep_addresses = keep_addresses
        self._slots = asyncio.Semaphore(at_once)

    async def run(self, manifests: Iterator[AnyManifest]) -> None:
        packages = (list(group) for _, group in groupby(manifests, key=lambda manifest: manifest.package_id))
        async with asyncio.TaskGroup() as tasks:
            while package := await asyncio.to_thread(next, packages, None):  # This reads the files.
                await self._slots.acquire()
                if self.gave_up:
                    break
                tasks.create_task(self._publish_and_release(package))

    async def _publish_and_release(self, package: Sequence[AnyManifest]) -> None:
        try:
            self.rows += [of_refused(refused) for refused in package if isinstance(refused, RefusedManifest)]
            await self._publish([manifest for manifest in package if isinstance(manifest, Manifest)])
        finally:
            self._slots.release()

    async def _publish(self, manifests: Sequence[Manifest]) -> None:
        """Publish the manifests of one package."""
        sources: list[tuple[Manifest, ManifestInstaller]] = []
        for manifest in manifests:
            try:
                sources += [(manifest, installer) for installer in self._installers(manifest)]
            except ManifestRefused as problem:
                refused = RefusedManifest(manifest.path, problem.detail, manifest.package_id, manifest.version)
                self.rows.append(of_refused(refused))
        if not sources:
            return
        newest, _ = max(sources, key=lambda source: VersionOrder(source[0].version))
        installers = [source.installer for _, source in sources]
        results: Sequence[Result]
        try:
            results = await self._publish_installers(installers[0].package_id, new_package(newest), installers)
        except Problem as problem:
            results = [NotPublished(installer, problem) for installer in installers]
        self.rows += [of_result(*source, result) for source, result in zip(sources, results, strict=True)]
        for result in results:
            if isinstance(result, NotPublished) and is_transient(result.problem):
                self.gave_up = result.problem

    def _installers(self, manifest: Manifest) -> Sequence[ManifestInstaller]:
        installers = manifest_installers(manifest, keep_addresses=self._keep_addresses)
        if self._one_installer_a_version and len(installers) > 1:
            raise ManifestRefused(
                f"has {len(installers)} installers, and a version of this tenant has one; "
                "with version_key=installer in edit_settings it may have several"
            )
        return installers
