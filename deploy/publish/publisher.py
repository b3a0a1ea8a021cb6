"""From files to versions: what is there already is left alone, the rest is sent, several at once."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from common.errors import NotFound, Problem, UpstreamProblem
from deploy.publish.files import LocalFile, open_file
from deploy.publish.interface import Interface
from deploy.publish.model import Installer, NewPackage, NotPublished, Published
from deploy.publish.problems import OtherBytes, StoredDamaged, StoredDifferently, VersionTaken
from deploy.publish.progress import Progress, Row
from deploy.publish.transfer import Transfer

AT_ONCE = 4  # files; the connections share the line evenly among themselves
UNUSABLE = frozenset(
    ["transfer_cancelled", "transfer_damaged", "installer_damaged", "installer_missing", "installer_not_found"]
)

OpenInstaller = Callable[[Installer, Row], AbstractAsyncContextManager[LocalFile]]
"""Opens an installer's file, to be read within a block; raises a Problem where it is not to be had."""


def from_disk(installer: Installer, _: Row) -> AbstractAsyncContextManager[LocalFile]:
    return open_file(installer.path)


@dataclass(frozen=True)
class Catalog:
    """What the server has of the package before anything is sent."""

    versions: Sequence[Mapping[str, str]]
    one_installer_a_version: bool

    def uid_of(self, installer: Installer, sha256: str) -> str | None:
        """The UID of the very version, if it is there with the same bytes.

        Raises:
            VersionTaken: its place is taken by other bytes, or by another installer of the version.
        """
        same_key = [one for one in self.versions if installer.key.items() <= one.items()]
        for listed in same_key:
            if listed["INSTALLER_SHA256"] == sha256:
                return listed["UID"]
        rivals = [one for one in self.versions if one["VERSION"] == installer.version]
        if taken := same_key or (self.one_installer_a_version and rivals):
            raise VersionTaken(
                f"{installer.package_id} has version {installer.version} already, with another installer "
                f"(UID {taken[0]['UID']})."
            )
        return None


class Publisher:
    """Publishes installers, `at_once` of them at the same time."""

    def __init__(
        self,
        interface: Interface,
        progress: Progress,
        chunk_size: int,
        *,
        at_once: int = AT_ONCE,
        open_installer: OpenInstaller = from_disk,
    ) -> None:
        self._interface = interface
        self._progress = progress
        self._chunk_size = chunk_size
        self._open = open_installer
        self._turns = asyncio.Semaphore(at_once)

    async def publish(
        self, package_id: str, package: NewPackage | None, installers: Sequence[Installer]
    ) -> list[Published | NotPublished]:
        """What came of each file of a package, in their order; one that fails keeps no other from being published.

        Raises:
            Problem: nothing could be tried: no sign-in, no such package and none to add.
        """
        versions = await self._interface.versions(package_id)
        if versions is None:
            if package is None:
                raise NotFound(f"There is no package {package_id!r}; with --package-name and --publisher it is added.")
            await self._interface.add_package(package_id, package)
        catalog = Catalog(versions or (), await self._interface.one_installer_a_version())
        return await asyncio.gather(*(self._in_turn(installer, catalog) for installer in installers))

    async def _in_turn(self, installer: Installer, catalog: Catalog) -> Published | NotPublished:
        async with self._turns:
            with self._progress.row(installer.path.name) as row:
                try:
                    if installer.sha256 and (uid := catalog.uid_of(installer, installer.sha256)):
                        await self._check_whole(installer, uid)
                        return Published(installer, uid, installer.sha256, 0, 0, created=False)
                    if installer.stays:
                        return await self._keep_address(installer)
                    async with self._open(installer, row) as file:
                        return await self._publish(installer, catalog, file, row)
                except Problem as problem:
                    return NotPublished(installer, problem)

    async def _publish(self, installer: Installer, catalog: Catalog, file: LocalFile, row: Row) -> Published:
        row.reading(file.size)
        sha256 = await file.sha256(row.at)
        if installer.sha256 not in {"", sha256}:
            raise OtherBytes(file.path, installer.sha256, sha256)
        if uid := catalog.uid_of(installer, sha256):
            await self._check_whole(installer, uid)
            return Published(installer, uid, sha256, file.size, file.size, created=False)
        reason: Problem = StoredDifferently(f"The server has other bytes than {file.path}, again and again.")
        for file_id in installer.file_ids(sha256):
            try:
                stored = await Transfer(self._interface, file, file_id, self._chunk_size, row).send()
                if stored.sha256 != sha256:
                    continue
                uid, created = await self._create(installer, sha256, server_filename=stored.server_filename)
            except UpstreamProblem as refusal:
                if refusal.code not in UNUSABLE:
                    raise
                reason = refusal
            else:
                return Published(installer, uid, sha256, file.size, stored.resumed_from, created=created)
        raise reason

    async def _keep_address(self, installer: Installer) -> Published:
        url, sha256 = installer.url, installer.sha256
        uid, created = await self._create(installer, sha256, installer_url=url, installer_sha256=sha256)
        return Published(installer, uid, sha256, 0, 0, created=created)

    async def _create(self, installer: Installer, sha256: str, **where: str) -> tuple[str, bool]:
        """The version's UID, and whether it was made just now: an answer that was lost may have made it before."""
        try:
            return await self._interface.add_version(installer, **where), True
        except UpstreamProblem as refusal:
            if refusal.code != "version_exists":
                raise
            catalog = Catalog(await self._interface.versions(installer.package_id) or (), one_installer_a_version=False)
            try:
                uid = catalog.uid_of(installer, sha256)
            except VersionTaken:
                uid = None
            if uid is None:
                raise
            await self._check_whole(installer, uid)
            return uid, False

    async def _check_whole(self, installer: Installer, uid: str) -> None:
        """Let a version pass whose file can be served. Raises StoredDamaged."""
        if uid in await self._interface.damaged_versions():
            raise StoredDamaged(
                f"{installer.package_id} has version {installer.version} already, but its stored file is damaged; "
                f"delete the version (UID {uid}) and publish it again."
            )
