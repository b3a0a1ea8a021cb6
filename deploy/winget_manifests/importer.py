"""Publishes manifests package by package, several at once. Existing versions are left unchanged."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from catalog_service.model.ordering import VersionOrder
from common.errors import Problem
from deploy.publish.model import Installer, NewPackage, NotPublished, Published
from deploy.publish.problems import is_transient
from deploy.publish.publisher import Catalog
from deploy.publish.retrying_client import RetryingClient
from deploy.winget_manifests import report
from deploy.winget_manifests.manifest import Manifest
from deploy.winget_manifests.manifest_tree import RefusedManifest
from deploy.winget_manifests.report import Row, WouldPublish
from deploy.winget_manifests.schema.installer_form import ManifestInstaller, manifest_installers
from deploy.winget_manifests.schema.package_form import new_package
from deploy.winget_manifests.sources import InstallerSources
from deploy.winget_manifests.yaml_reader import ManifestRefused

AnyManifest = Manifest | RefusedManifest
Result = Published | NotPublished | WouldPublish
# Publishes the installers of a package, which it adds if needed. The results are in their order.
Publish = Callable[[str, NewPackage, Sequence[Installer]], Awaitable[Sequence[Result]]]


@dataclass(frozen=True)
class DryRun:
    """Returns the results that publishing would have, and changes nothing."""

    client: RetryingClient
    sources: InstallerSources

    async def publish(self, package_id: str, _: NewPackage, installers: Sequence[Installer]) -> Sequence[Result]:
        versions = await self.client.versions(package_id) or ()
        catalog = Catalog(versions, await self.client.one_installer_a_version())
        return [await self._result(catalog, installer) for installer in installers]

    async def _result(self, catalog: Catalog, installer: Installer) -> Result:
        try:
            if uid := catalog.uid_of(installer, installer.sha256):
                return Published(installer, uid, installer.sha256, 0, 0, created=False)
            if not installer.stays:
                await self.sources.find(installer)
        except Problem as problem:
            return NotPublished(installer, problem)
        return WouldPublish(installer)


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
            self.rows += [report.of_refused(refused) for refused in package if isinstance(refused, RefusedManifest)]
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
                self.rows.append(report.of_refused(refused))
        if not sources:
            return
        newest, _ = max(sources, key=lambda source: VersionOrder(source[0].version))
        installers = [source.installer for _, source in sources]
        results: Sequence[Result]
        try:
            results = await self._publish_installers(installers[0].package_id, new_package(newest), installers)
        except Problem as problem:
            results = [NotPublished(installer, problem) for installer in installers]
        self.rows += [report.of_published(*source, result) for source, result in zip(sources, results, strict=True)]
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
