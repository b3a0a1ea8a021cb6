"""Where the installers that manifests name are taken from: a folder first, then their makers' addresses."""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from deploy.publish.files import LocalFile, open_file, open_regular
from deploy.publish.model import Installer
from deploy.publish.problems import OtherBytes
from deploy.terminal import FileProgress
from deploy.winget_import.fetching import Fetcher
from deploy.winget_import.problems import InstallerMissing


class InstallersFolder:
    """Installers below a folder, found by the name in their address, or else by their SHA-256.

    What is hashed once is not hashed again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[Path, str] = {}
        self._by_digest: dict[str, Path] = {}
        self._hashing = asyncio.Lock()

    async def find(self, installer: Installer) -> Path:
        """Where the installer is. Raises InstallerMissing and OtherBytes."""
        async with self._hashing:
            return await asyncio.to_thread(self._find, installer)

    @cached_property
    def _files(self) -> Sequence[Path]:
        return [path for path in sorted(self._path.rglob("*")) if path.is_file()]

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[Path]]:
        """The files by their names, and by what stands before the ending, which may be a digest."""
        found: dict[str, list[Path]] = defaultdict(list)
        for path in self._files:
            for name in {path.name.casefold(), path.stem.casefold()}:
                found[name].append(path)
        return found

    @cached_property
    def _unread(self) -> Iterator[Path]:
        return iter(self._files)

    def _find(self, installer: Installer) -> Path:
        named = self._by_name.get(installer.path.name.casefold(), ())
        for path in (*named, *self._by_name.get(installer.sha256, ())):
            if self._sha256(path) == installer.sha256:
                return path
        while installer.sha256 not in self._by_digest and (unread := next(self._unread, None)):
            self._sha256(unread)
        if found := self._by_digest.get(installer.sha256):
            return found
        if named:
            raise OtherBytes(named[0], installer.sha256, self._sha256(named[0]))
        raise InstallerMissing(f"{installer.path.name} is not in {self._path}, nor any file of its SHA-256.")

    def _sha256(self, path: Path) -> str:
        if path not in self._known:
            try:
                with open(path, "rb", opener=open_regular) as file:
                    self._known[path] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError:
                self._known[path] = ""
            self._by_digest.setdefault(self._known[path], path)
        return self._known[path]


@dataclass(frozen=True)
class Sources:
    """Where installers are looked for."""

    folder: InstallersFolder | None
    fetcher: Fetcher | None

    @asynccontextmanager
    async def open(self, installer: Installer, row: FileProgress) -> AsyncIterator[LocalFile]:
        """The installer's file.

        Raises:
            InstallerMissing: it is nowhere.
            OtherBytes: the folder has another of its name.
            FileUnusable: it cannot be read.
            AddressForbidden, NotFetched: see `Fetcher.open`.
        """
        path = await self.find(installer)
        async with AsyncExitStack() as stack:
            if path or not self.fetcher:
                yield await stack.enter_async_context(open_file(path or installer.path))
            else:
                yield await stack.enter_async_context(self.fetcher.open(installer, row))

    async def find(self, installer: Installer) -> Path | None:
        """Where the installer is in the folder; None where it is to be fetched. Raises as `open` does."""
        try:
            if self.folder:
                return await self.folder.find(installer)
        except (InstallerMissing, OtherBytes):
            if not self.fetcher:
                raise
        if self.fetcher:
            self.fetcher.check(installer.url)
        return None
