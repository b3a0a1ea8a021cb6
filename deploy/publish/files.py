"""Installer files: reading in a thread with a check for changes, and the facts in a file's name."""

import asyncio
import errno
import hashlib
import os
import re
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from catalog_service.model.enumerations import Architecture, FileType
from deploy.publish.problems import FileChanged, FileUnusable
from upload_service.model import FONTS

BLOCK = 4 << 20  # bytes
_TYPES = {
    ".exe": FileType.EXE,
    ".msi": FileType.MSI,
    **dict.fromkeys((".msix", ".msixbundle"), FileType.MSIX),
    **dict.fromkeys((".appx", ".appxbundle"), FileType.APPX),
    ".zip": FileType.ZIP,
    **dict.fromkeys(FONTS, FileType.FONT),
}
# The order matters: `x86_64` is not x86, and some build tools write Windows on x64 as `win32-x64`.
_ARCHITECTURES = (
    (Architecture.ARM64, r"arm64|aarch64"),
    (Architecture.X64, r"x64|amd64|x86[_-]64|win64|64[_-]?bit"),
    (Architecture.X86, r"x86|i[3-6]86|ia32|win32|32[_-]?bit"),
    (Architecture.ARM, r"arm"),
)


class LocalFile:
    """An open file. Every read fails once the file has changed."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._opened = os.fstat(descriptor)
        self.size = self._opened.st_size  # bytes

    async def sha256(self, progress: Callable[[int], None]) -> str:
        """The hexadecimal digest; `progress` is called with the number of bytes read. Raises as `read` does."""
        digest = hashlib.sha256()
        for start in range(0, self.size, BLOCK):
            block = await self.read(start, min(BLOCK, self.size - start))
            await asyncio.to_thread(digest.update, block)
            progress(start + len(block))
        return digest.hexdigest()

    async def read(self, start: int, length: int) -> bytes:
        """Read bytes that lie within the file. Raises FileChanged, and FileUnusable for an error of the disk."""
        return await asyncio.to_thread(self._read, start, length)

    def _read(self, start: int, length: int) -> bytes:
        try:
            content = os.pread(self._descriptor, length, start)
            now = os.fstat(self._descriptor)
        except OSError as error:
            raise FileUnusable(f"{self.path} cannot be read: {error.strerror}.") from None
        is_same = (now.st_size, now.st_mtime_ns) == (self._opened.st_size, self._opened.st_mtime_ns)
        if not is_same or len(content) != length:
            raise FileChanged(f"{self.path} changed while it was sent; run the command again.")
        return content


@asynccontextmanager
async def open_file(path: Path) -> AsyncIterator[LocalFile]:
    """Open a file for the block. Raises FileUnusable for a file that is empty or cannot be opened."""
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except OSError as error:
        raise FileUnusable(f"{path} cannot be read: {error.strerror}.") from None
    try:
        file = LocalFile(path, descriptor)
        if not file.size:
            raise FileUnusable(f"{path} is empty.")
        yield file
    finally:
        os.close(descriptor)


def open_regular(path: str | Path, flags: int) -> int:
    """Open a regular file without blocking; usable as the opener of `open`. Raises OSError, also for a pipe."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is no regular file", str(path))


def file_type_of(path: Path) -> FileType | None:
    """The type that the suffix stands for."""
    return _TYPES.get(path.suffix.lower())


def suffix_of(path: Path) -> str:
    """The suffix if an installer has it, else ""."""
    return path.suffix.lower() if file_type_of(path) else ""


def architecture_of(path: Path) -> Architecture:
    """The architecture that the file's name contains as a separate word; x64 if there is none."""
    for architecture, words in _ARCHITECTURES:
        if re.search(rf"(?<![a-z0-9])({words})(?![a-z0-9])", path.name.lower()):
            return architecture
    return Architecture.X64
