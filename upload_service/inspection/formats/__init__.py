"""The formats of installers, which their first bytes tell. A module reads each."""

from typing import BinaryIO

from upload_service.inspection.formats import archives, executables, msi
from upload_service.inspection.model import ARCHIVE_MAGIC, MAGIC_LENGTH, OLE_MAGIC, PROGRAM_MAGIC, Findings


class Damaged(Exception):
    """The file is not what its first bytes say."""


def inspect_file(file: BinaryIO, suffix: str) -> Findings:
    """Inspect a file; `suffix` is the ending of its name, if that is an installer's.

    Raises:
        Damaged: the file begins like an installer and cannot be read as one.
        MemoryError: the process may use no more memory.
    """
    file.seek(0)
    head = file.read(MAGIC_LENGTH)
    try:
        if head == OLE_MAGIC:
            return msi.read(file)
        if head.startswith(PROGRAM_MAGIC):
            return executables.read(file)
        if head.startswith(ARCHIVE_MAGIC):
            return archives.read(file, suffix)
    except MemoryError:
        raise
    except Exception as error:
        raise Damaged from error
    return Findings()
