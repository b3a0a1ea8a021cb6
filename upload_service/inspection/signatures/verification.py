"""Verification of a file's signatures, by the kind of the file."""

from datetime import UTC, datetime
from typing import BinaryIO

from upload_service.inspection.model import ARCHIVE_MAGIC, MAGIC_LENGTH, OLE_MAGIC, PROGRAM_MAGIC
from upload_service.inspection.signatures import databases, packages, programs
from upload_service.inspection.signatures.model import Signature, SignatureProblem, SignatureState, worst
from upload_service.inspection.signatures.trust import TrustStore


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
        return Signature(problem.state, str(problem))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  hostile files cause errors of many kinds in the libraries
        return Signature(SignatureState.INVALID, "The file or its signature is malformed.")
    return Signature(SignatureState.UNSUPPORTED, "Files of this kind have no signature.")
