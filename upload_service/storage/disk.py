"""Names that are safe on the disk, and the errors of a full one. Everything here blocks: call it in a worker thread."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from upload_service.model import StorageFull


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def full_disk() -> Iterator[None]:
    """Raise StorageFull for an OSError that says the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StorageFull from error
        raise
