"""Publishes installers: skips existing versions, sends the files, creates the versions."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace

from common.errors import NotFound, Problem, UpstreamProblem
from deploy.publish.files import LocalFile, open_file
from deploy.publish.model import Installer, NewPackage, NotPublished, Published
from deploy.publish.problems import OtherBytes, StoredDamaged, StoredDifferently, VersionTaken
from deploy.publish.retrying_client import RetryingClient
from deploy.publish.transfer import Transfer
from deploy.terminal import READING, FileProgress, Rows

AT_ONCE = 4  # files; their connections share the bandwidth
UNUSABLE = frozenset(
    ["transfer_cancelled", "transfer_damaged", "installer_damaged", "installer_missing", "installer_not_found"]
)

OpenInstaller = Callable[[Installer, FileProgress], AbstractAsyncContextManager[LocalFile]]
"""Opens an installer's file for the block; raises a Problem if it is not available."""


@dataclass(frozen=True)
class Catalog:
    """The versions of the package that the server has."""

    versions: Sequence[Mapping[str, str]]
    one_installer_a_version: bool

    def uid_of(self, installer: Installer, sha256: str) -> str | None:
        """The UID of the version if it exists with the same bytes. Raises VersionTaken if it has another installer."""
        same_key = [row for row in self.versions if installer.key.items() <= row.items()]
        for row in same_key:
            if row["INSTALLER_SHA256"] == sha256:
                return row["UID"]
        same_version = [row for row in self.versions if row["VERSION"] == installer.version]
        if others := same_key or (self.one_installer_a_version and same_version):
            raise VersionTaken(
                f"{installer.package_id} has version {installer.version} already, with another installer "
                f"(UID {others[0]['UID']})."
            )
        return None


@dataclass
class Publisher:
    """Publishes installers, `at_once` of them in parallel."""

    client: RetryingClient
    rows: Rows
    chunk_size: int
    at_once: int = AT_ONCE
    open_installer: OpenInstaller = lambda installer, _: open_file(installer.path)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.at_once)

    async def publish(
        self, package_id: str, package: NewPackage | None, installers: Sequence[Installer]
    ) -> list[Published | NotPublished]:
        """The result of each installer, in their order. One that fails does not stop the others.

        Raises Problem if the sign-in fails, or if the package does not exist and `package` is None.
        """
        versions = await self.client.versions(package_id)
        if versions is None:
            if package is None:
                raise NotFound(
                    f"There is no package {package_id!r}; give --package-name and --publisher to add the package."
                )
            await self.client.add_package(package_id, package)
        catalog = Catalog(versions or (), await self.client.one_installer_a_version())
        return await asyncio.gather(*(self._publish_in_slot(installer, catalog) for installer in installers))

    async def _publish_in_slot(self, installer: Installer, catalog: Catalog) -> Published | NotPublished:
        async with self._slots:
            with self.rows(installer.path.name) as progress:
                result = await self._publish_installer(installer, catalog, progress)
                if isinstance(result, Published) and result.created:
                    with suppress(Problem):  # The version is published; only a warning is missing.
                        return replace(result, shared=await self.client.shared_identities(result.uid))
                return result

    async def _publish_installer(
        self, installer: Installer, catalog: Catalog, progress: FileProgress
    ) -> Published | NotPublished:
        try:
            if installer.sha256 and (uid := catalog.uid_of(installer, installer.sha256)):
                await self._require_intact(installer, uid)
                return Published(installer, uid, installer.sha256, 0, 0, created=False)
            if installer.stays:
                source = {"installer_url": installer.url, "installer_sha256": installer.sha256}
                uid, created = await self._create_version(installer, installer.sha256, **source)
                return Published(installer, uid, installer.sha256, 0, 0, created=created)
            async with self.open_installer(installer, progress) as file:
                return await self._publish_file(installer, catalog, file, progress)
        except Problem as problem:
            return NotPublished(installer, problem)

    async def _publish_file(
        self, installer: Installer, catalog: Catalog, file: LocalFile, progress: FileProgress
    ) -> Published:
        progress.start(READING, file.size)
        sha256 = await file.sha256(progress.update)
        if installer.sha256 not in {"", sha256}:
            raise OtherBytes(path=file.path, expected=installer.sha256, actual=sha256)
        if uid := catalog.uid_of(installer, sha256):
            await self._require_intact(installer, uid)
            return Published(installer, uid, sha256, file.size, file.size, created=False)
        reason: Problem = StoredDifferently(f"The server stored other bytes than those of {file.path}.")
        for file_id in installer.file_ids(sha256):
            try:
                transfer = Transfer(self.client, file, file_id, self.chunk_size, progress)
                stored = await transfer.send()
                if stored.sha256 != sha256:
                    continue
                uid, created = await self._create_version(installer, sha256, server_filename=stored.server_filename)
            except UpstreamProblem as refusal:
                # A token that may change only some packages may not use an upload that another caller began.
                if refusal.code not in UNUSABLE and refusal.params.get("reason") != "other_upload":
                    raise
                reason = refusal
            else:
                return Published(installer, uid, sha256, file.size, transfer.resumed_from, created=created)
        raise reason

    async def _create_version(self, installer: Installer, sha256: str, **source: str) -> tuple[str, bool]:
        """The version's UID, and whether it is new: an attempt whose answer was lost may have created it."""
        try:
            return await self.client.add_version(installer, **source), True
        except UpstreamProblem as refusal:
            if refusal.code != "version_exists":
                raise
            catalog = Catalog(await self.client.versions(installer.package_id) or (), one_installer_a_version=False)
            uid = None
            with suppress(VersionTaken):
                uid = catalog.uid_of(installer, sha256)
            if uid is None:
                raise
            await self._require_intact(installer, uid)
            return uid, False

    async def _require_intact(self, installer: Installer, uid: str) -> None:
        """Raise StoredDamaged if the version's file cannot be served."""
        if uid in await self.client.damaged_versions():
            raise StoredDamaged(
                f"{installer.package_id} has version {installer.version} already, but its stored file is damaged; "
                f"delete the version (UID {uid}) and publish it again."
            )
