"""Publishes installers: skips existing versions, sends the files in chunks, creates the versions.

A transfer resumes at the byte that the server expects.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass

from common.errors import NotFound, Problem, UpstreamProblem
from deploy.publish.client import RetryingClient, TransferState
from deploy.publish.files import LocalFile, open_file, suffix_of
from deploy.publish.model import (
    Installer,
    NewPackage,
    NotPublished,
    OtherBytes,
    Published,
    StoredDamaged,
    StoredDifferently,
    Unreachable,
    UploadCancelled,
    VersionTaken,
)
from deploy.terminal import FileProgress, Rows

MIN_CHUNK = 256 << 10  # bytes of the chunks over an unreliable connection
AT_ONCE = 4  # files; their connections share the bandwidth
UNUSABLE = frozenset(
    ["transfer_cancelled", "transfer_damaged", "installer_damaged", "installer_missing", "installer_not_found"]
)
OpenInstaller = Callable[[Installer, FileProgress], AbstractAsyncContextManager[LocalFile]]
"""Opens an installer's file for the block; raises a Problem if it is not available."""


@dataclass
class Transfer:
    """Sends one file under one X-File-ID, in chunks of at most `chunk_size` bytes.

    `resumed_from` is the number of bytes that the server had before this run.
    """

    client: RetryingClient
    file: LocalFile
    file_id: str
    chunk_size: int
    progress: FileProgress
    resumed_from: int = 0

    async def send(self) -> TransferState:
        """Send the bytes that the server lacks; the state of the complete transfer.

        Raises:
            UploadCancelled: another client cancelled the transfer after this run began.
            Problem: the server refuses or does not answer for too long, or the file changed.
        """
        state = await self.client.state(self.file_id)
        self.resumed_from = state.received
        self.progress.start("sending", self.file.size, state.received)
        try:
            while not state.complete:
                state = await self._send_next_chunk(state)
        except UpstreamProblem as refusal:
            if refusal.code == "transfer_cancelled" and state.received:
                raise UploadCancelled(f"The upload of {self.file.path} was cancelled by another client.") from None
            raise
        return state

    async def _send_next_chunk(self, state: TransferState) -> TransferState:
        known: TransferState | None = state

        async def attempt() -> TransferState:
            nonlocal known
            before = known or await self.client.state(self.file_id)
            known = None  # After a failed attempt only the server knows the state.
            return before if before.complete else await self._send_from(before.received)

        return await self.client.retrying(attempt)

    async def _send_from(self, start: int) -> TransferState:
        self.progress.update(start)
        content = await self.file.read(start, min(self.chunk_size, self.file.size - start))
        try:
            return await self.client.send_chunk(
                self.file_id, start, self.file.size, content, suffix_of(self.file.path), self.progress.update
            )
        except UpstreamProblem as refusal:
            if refusal.code == "unexpected_chunk":  # Another client sends the same file, or has sent it.
                state = await self.client.state(self.file_id)
                if state.received == start and not state.complete:
                    raise
                return state
            if refusal.code == "invalid_request":  # The body was too slow or incomplete; the server kept nothing of it.
                raise self._connection_failure(refusal) from None
            raise
        except Unreachable as problem:
            raise self._connection_failure(problem) from None

    def _connection_failure(self, problem: Problem) -> Unreachable:
        """Halve the chunks: the server keeps only whole chunks, and small ones pass an unreliable connection."""
        self.chunk_size = max(MIN_CHUNK, self.chunk_size // 2)
        return Unreachable(problem.detail)


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
                advice = "To create it, add --package-name NAME --publisher NAME."
                raise NotFound(f"There is no package {package_id!r}. {advice}")
            await self.client.add_package(package_id, package)
        catalog = Catalog(versions or (), await self.client.one_installer_a_version())
        return await asyncio.gather(*(self._publish_in_slot(installer, catalog) for installer in installers))

    async def _publish_in_slot(self, installer: Installer, catalog: Catalog) -> Published | NotPublished:
        async with self._slots:
            with self.rows(installer.path.name) as progress:
                result = await self._publish_installer(installer, catalog, progress)
                if isinstance(result, Published) and result.created:
                    with suppress(Problem):  # The version is published; only a warning is missing.
                        return await self.client.with_warnings(result)
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
        progress.start("reading", file.size)
        sha256 = await file.sha256(progress.update)
        if installer.sha256 not in {"", sha256}:
            raise OtherBytes(path=file.path, expected=installer.sha256, actual=sha256)
        if uid := catalog.uid_of(installer, sha256):
            await self._require_intact(installer, uid)
            return Published(installer, uid, sha256, file.size, file.size, created=False)
        await self.client.request("GET", "check_version", query={"package_id": installer.package_id})  # May the token?
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
