"""Files of rendered catalogs, which take no memory of the process and are sent without copying.

A file has no name and is never changed. It exists while an object refers to it, such as a response to a slow client.
The system deletes it when the process ends, however it ends.
"""

import errno
import os
import resource
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from queue import SimpleQueue
from threading import Thread
from weakref import finalize

from common.http.zero_copy.sources import FileRange

MIN_SIZE = 4096  # bytes that a file takes on disk
RESERVE = 1 << 30  # bytes that stay free on the disk, or a tenth of a small one
SHARE_OF_DESCRIPTORS = 4  # of the process's open files, one in so many may be a catalog's


class CatalogFile:
    """An open file without a name; `size` is the number of bytes that it counts as."""

    def __init__(self, descriptor: int, length: int, size: int) -> None:
        self._descriptor = descriptor
        self.length = length
        self.size = size
        finalize(self, _closing().put, descriptor).atexit = False

    def fileno(self) -> int:
        return self._descriptor

    def range(self, start: int, end: int) -> FileRange:
        return FileRange(self, start, end - start)


class CatalogFiles:
    """Writes files. Their sizes add up to at most `limit` bytes, which the owner of the files ensures."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._min_size = max(MIN_SIZE, limit * SHARE_OF_DESCRIPTORS // descriptors if descriptors > 0 else 0)

    def size(self, length: int) -> int:
        """Return the bytes that a file of this length counts as: so many that the files do not become too many."""
        return max(length, self._min_size)

    def write(self, *blocks: bytes) -> CatalogFile:
        """Write a file, in a worker thread. Raises OSError if the disk has no room."""
        length = sum(map(len, blocks))
        disk = shutil.disk_usage(tempfile.gettempdir())
        if disk.free - length < min(RESERVE, disk.total // 10):
            raise OSError(errno.ENOSPC, "The disk of temporary files is almost full.")
        with tempfile.TemporaryFile() as file:
            for block in blocks:
                file.write(block)
            file.flush()
            return CatalogFile(os.dup(file.fileno()), length, self.size(length))


@cache
def _closing() -> SimpleQueue[int]:
    """Return a queue of descriptors to close. A thread closes them, because the system then frees the whole file."""
    descriptors: SimpleQueue[int] = SimpleQueue()
    Thread(target=_close_all, args=[descriptors], name="close-catalogs", daemon=True).start()
    return descriptors


def _close_all(descriptors: SimpleQueue[int]) -> None:
    while True:
        with suppress(OSError):  # The descriptor is closed nevertheless.
            os.close(descriptors.get())
