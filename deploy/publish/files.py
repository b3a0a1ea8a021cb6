"""A file on its way to the server: read in pieces beside the event loop, and watched for changes."""

import asyncio
import errno
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from deploy.publish.problems import FileChanged, FileUnusable

BLOCK = 4 << 20  # bytes


class LocalFile:
    """An open file of `size` bytes."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._first = os.fstat(descriptor)

    @property
    def size(self) -> int:
        return self._first.st_size

    async def sha256(self, tell: Callable[[int], None]) -> str:
        """The hexadecimal digest; `tell` hears how many bytes are read. Raises as `read` does."""
        digest = hashlib.sha256()
        for start in range(0, self.size, BLOCK):
            block = await self.read(start, min(BLOCK, self.size - start))
            await asyncio.to_thread(digest.update, block)
            tell(start + len(block))
        return digest.hexdigest()

    async def read(self, start: int, length: int) -> bytes:
        """Bytes that lie within the file.

        Raises:
            FileChanged: it has changed since it was opened.
            FileUnusable: the disk does not give them.
        """
        return await asyncio.to_thread(self._read, start, length)

    def _read(self, start: int, length: int) -> bytes:
        try:
            content = os.pread(self._descriptor, length, start)
            now = os.fstat(self._descriptor)
        except OSError as error:
            raise FileUnusable(f"{self.path} cannot be read: {error.strerror}.") from None
        if (now.st_size, now.st_mtime_ns) != (self._first.st_size, self._first.st_mtime_ns) or len(content) != length:
            raise FileChanged(self.path)
        return content


@asynccontextmanager
async def open_file(path: Path) -> AsyncIterator[LocalFile]:
    """The file, to be read within the block. Raises FileUnusable where it is empty or cannot be opened."""
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
    """A descriptor, for `open` to take as its opener. Raises OSError, of a pipe or a device too, and waits for none."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is no regular file", str(path))
