"""From manifests to versions, package by package, several at once; what is there already is left alone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from catalog_service.model.ordering import VersionOrder
from common.errors import Problem
from deploy.publish.interface import Interface
from deploy.publish.model import Installer, NewPackage, NotPublished, Published
from deploy.publish.problems import is_transient
from deploy.publish.publisher import Catalog
from deploy.winget_import import report
from deploy.winget_import.discovery import Refused
from deploy.winget_import.installers import Sources
from deploy.winget_import.problems import ManifestRefused
from deploy.winget_import.reading import Manifest
from deploy.winget_import.report import NotTried, Row
from deploy.winget_import.schema.installer_forms import Wanted, wanted
from deploy.winget_import.schema.package_texts import new_package

Found = Manifest | Refused
Came = Published | NotPublished | NotTried
Publish = Callable[[str, NewPackage, Sequence[Installer]], Awaitable[Sequence[Came]]]
"""Publishes installers of a package, adding it where it does not exist; what came of each, in their order."""


@dataclass(frozen=True)
class Trial:
    """Says what would come of installers, and changes nothing."""

    interface: Interface
    sources: Sources

    async def publish(self, package_id: str, _: NewPackage, installers: Sequence[Installer]) -> Sequence[Came]:
        versions = await self.interface.versions(package_id) or ()
        catalog = Catalog(versions, await self.interface.one_installer_a_version())
        return [await self._tried(catalog, installer) for installer in installers]

    async def _tried(self, catalog: Catalog, installer: Installer) -> Came:
        try:
            if uid := catalog.uid_of(installer, installer.sha256):
                return Published(installer, uid, installer.sha256, 0, 0, created=False)
            if not installer.stays:
                await self.sources.find(installer)
        except Problem as problem:
            return NotPublished(installer, problem)
        return NotTried(installer)


class ManifestImport:
    """Publishes what manifests name. `rows` has what came of it so far; `gave_up` is why it stopped before the end."""

    def __init__(
        self, publish: Publish, *, one_installer_a_version: bool, at_once: int, keep_addresses: bool = False
    ) -> None:
        self.rows: list[Row] = []
        self.gave_up: Problem | None = None
        self._publish_installers = publish
        self._one_installer_a_version = one_installer_a_version
        self._keep_addresses = keep_addresses
        self._turns = asyncio.Semaphore(at_once)

    async def run(self, found: Iterator[Found]) -> None:
        packages = _by_package(found)
        async with asyncio.TaskGroup() as tasks:
            async for manifests in packages:
                await self._turns.acquire()
                if self.gave_up:
                    break
                tasks.create_task(self._in_turn(manifests))

    async def _in_turn(self, found: Sequence[Found]) -> None:
        try:
            self.rows += [report.of_refused(one) for one in found if isinstance(one, Refused)]
            await self._publish([one for one in found if isinstance(one, Manifest)])
        finally:
            self._turns.release()

    async def _publish(self, manifests: Sequence[Manifest]) -> None:
        """Publish the manifests of one package."""
        named: list[tuple[Manifest, Wanted]] = []
        for manifest in manifests:
            try:
                named += [(manifest, one) for one in self._wanted(manifest)]
            except ManifestRefused as problem:
                self.rows.append(report.of_manifest(manifest, problem))
        if not named:
            return
        package = new_package(max((manifest for manifest, _ in named), key=lambda one: VersionOrder(one.version)))
        installers = [one.installer for _, one in named]
        done: Sequence[Came]
        try:
            done = await self._publish_installers(installers[0].package_id, package, installers)
        except Problem as problem:
            done = [NotPublished(installer, problem) for installer in installers]
        self.rows += [report.of_published(*one, came) for one, came in zip(named, done, strict=True)]
        for came in done:
            if isinstance(came, NotPublished) and is_transient(came.problem):
                self.gave_up = came.problem

    def _wanted(self, manifest: Manifest) -> Sequence[Wanted]:
        found = wanted(manifest, keep_addresses=self._keep_addresses)
        if self._one_installer_a_version and len(found) > 1:
            raise ManifestRefused(
                f"has {len(found)} installers, and a version of this tenant has one; "
                "with version_key=installer in edit_settings it may have several"
            )
        return found


async def _by_package(found: Iterator[Found]) -> AsyncIterator[Sequence[Found]]:
    """Those of one package that follow one another; read beside the event loop."""
    groups = groupby(found, key=lambda one: one.package_id)

    def read() -> Sequence[Found]:
        return [one for _, group in (next(groups, ("", ())),) for one in group]

    while batch := await asyncio.to_thread(read):
        yield batch
