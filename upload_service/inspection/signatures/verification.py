"""Verification of a file's signatures, by the kind of the file."""

import struct
import zlib
from datetime import UTC, datetime
from typing import BinaryIO

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from upload_service.inspection.model import ARCHIVE_MAGIC, MAGIC_LENGTH, OLE_MAGIC, PROGRAM_MAGIC
from upload_service.inspection.signatures import databases, packages, programs
from upload_service.inspection.signatures.model import Signature, SignatureProblem, SignatureState, worst
from upload_service.inspection.signatures.trust import TrustStore

# The errors of the libraries for malformed files and signatures. Hostile files cause many kinds.
_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    UnsupportedAlgorithm,
    ValueError,
    struct.error,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
    zlib.error,
)
_MALFORMED = "The file or its signature is malformed."


def verify_file(file: BinaryIO, size: int, trust: TrustStore, now: datetime | None = None) -> Signature:
    """The verdict about a file of so many bytes. Raises MemoryError if the process may use no more memory."""
    file.seek(0)
    head = file.read(MAGIC_LENGTH)
    now = now or datetime.now(UTC)
    try:
        if head == OLE_MAGIC:
            return worst(databases.verify(file, size, trust, now))
        if head.startswith(PROGRAM_MAGIC):
            return worst(programs.verify(file, size, trust, now))
        if head.startswith(ARCHIVE_MAGIC):
            return worst(packages.verify(file, size, trust, now))
    except SignatureProblem as problem:
        return Signature(problem.state, problem.reason)
    except _ERRORS:
        return Signature(SignatureState.INVALID, _MALFORMED)
    return Signature(SignatureState.UNSUPPORTED, "Files of this kind have no signature.")
