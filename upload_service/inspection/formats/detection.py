"""What a file is, by its first bytes; the rest is asked of whoever knows the format."""

import struct
import zipfile
import zlib
from typing import BinaryIO

from upload_service.inspection.findings import Findings
from upload_service.inspection.formats import archives, executables, msi, signatures

# What the libraries raise of a file that is not what it begins like. They say it of hostile ones in many more ways.
_TROUBLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


class Damaged(Exception):
    """The file is not what its first bytes say."""


def inspect_file(file: BinaryIO, suffix: str) -> Findings:
    """What is found in a file; `suffix` is how its name ended, where that was an installer's ending.

    Raises:
        Damaged: it begins like an installer and cannot be read as one.
        MemoryError: reading it takes more than it may.
    """
    file.seek(0)
    head = file.read(signatures.LONGEST)
    try:
        if head == signatures.MSI:
            return msi.read(file)
        if head.startswith(signatures.PROGRAM):
            return executables.read(file)
        if head.startswith(signatures.ARCHIVE):
            return archives.read(file, suffix)
    except _TROUBLE as error:
        raise Damaged from error
    return Findings()
