"""Finds the installers of manifests: in a folder first, then at their addresses."""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from common.errors import Problem
from deploy.publish.files import LocalFile, open_file, open_regular
from deploy.publish.model import Installer
from deploy.publish.problems import OtherBytes
from deploy.terminal import FileProgress
from deploy.winget_manifests.fetcher import Fetcher


class InstallerMissing(Problem):
    """No source has the installer."""

    status = 404
    code = "installer_missing"


class InstallersFolder:
    """Finds installers below a folder by the name in their address, or else by their SHA-256.

    Each file is hashed once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digests: dict[Path, str] = {}
        self._by_digest: dict[str, Path] = {}
        self._hashing = asyncio.Lock()

    async def find(self, installer: Installer) -> Path:
        """Return the path of the installer. Raises InstallerMissing and OtherBytes."""
        async with self._hashing:
            return await asyncio.to_thread(self._find, installer)

    @cached_property
    def _files(self) -> Sequence[Path]:
        return [path for path in sorted(self._path.rglob("*")) if path.is_file()]

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[Path]]:
        """The files by their names, with and without the ending. Without it the name may be a digest."""
        files: dict[str, list[Path]] = defaultdict(list)
        for path in self._files:
            for name in {path.name.casefold(), path.stem.casefold()}:
                files[name].append(path)
        return files

    @cached_property
    def _unread(self) -> Iterator[Path]:
        return iter(self._files)

    def _find(self, installer: Installer) -> Path:
        same_name = self._by_name.get(installer.path.name.casefold(), ())
        for path in (*same_name, *self._by_name.get(installer.sha256, ())):
            if self._sha256(path) == installer.sha256:
                return path
        while installer.sha256 not in self._by_digest and (unread := next(self._unread, None)):
            self._sha256(unread)
        if same_digest := self._by_digest.get(installer.sha256):
            return same_digest
        if same_name:
            actual = self._sha256(same_name[0])
            raise OtherBytes(path=same_name[0], expected=installer.sha256, actual=actual)
        raise InstallerMissing(f"{installer.path.name} is not in {self._path}, nor any file of its SHA-256.")

    def _sha256(self, path: Path) -> str:
        if path not in self._digests:
            try:
                with open(path, "rb", opener=open_regular) as file:
                    self._digests[path] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError:
                self._digests[path] = ""
            self._by_digest.setdefault(self._digests[path], path)
        return self._digests[path]


@dataclass(frozen=True)
class InstallerSources:
    """The folder and the fetcher that may have an installer."""

    folder: InstallersFolder | None
    fetcher: Fetcher | None

    @asynccontextmanager
    async def open(self, installer: Installer, row: FileProgress) -> AsyncIterator[LocalFile]:
        """Open the installer's file.

        Raises:
            InstallerMissing: no source has it.
            OtherBytes: the folder has another file of its name.
            FileUnusable: it cannot be read.
            AddressForbidden, NotFetched: see `Fetcher.open`.
        """
        path = await self.find(installer)
        fetched = self.fetcher.open(installer, row) if self.fetcher and not path else None
        async with fetched or open_file(path or installer.path) as file:
            yield file

    async def find(self, installer: Installer) -> Path | None:
        """Return the path of the installer in the folder, None if it has to be fetched. Raises as `open` does."""
        try:
            if self.folder:
                return await self.folder.find(installer)
        except (InstallerMissing, OtherBytes):
            if not self.fetcher:
                raise
        if self.fetcher:
            self.fetcher.check(installer.url)
        return None
