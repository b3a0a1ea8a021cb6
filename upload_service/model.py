"""What an upload is, and what can go wrong with one."""

from dataclasses import dataclass
from enum import StrEnum

from common.errors import Conflict, InvalidRequest, NotFound, Problem


class Status(StrEnum):
    """Where an upload stands. Each change of it is one conditional update, so that only one of two rivals wins."""

    OPEN = "open"
    COMPLETE = "complete"
    LINKED = "linked"
    DELETING = "deleting"
    CANCELLED = "cancelled"  # Nothing is stored; the record refuses late chunks of this X-File-ID.


class StorageKind(StrEnum):
    """Where the file of a complete upload is kept."""

    FOLDER = "folder"
    S3 = "s3"


class Damage(StrEnum):
    """What the last reading of a stored file found wrong with it."""

    NONE = ""
    MISSING = "missing"
    ALTERED = "altered"


@dataclass(frozen=True)
class Upload:
    """One record of the collection `uploads`: a transfer, and the installer that comes of it.

    `total`, `offset` and `size` are bytes; the first `offset` bytes are stored and never change. `total` is 0 while the
    length of a file sent in one call is not known yet. `fence` counts the leases taken, and after them the claims.
    `tainted` says that a lease was taken over from a holder that had not given it back, and may still write to the
    transfer's file; `part` tells the files of a transfer apart: it is 0, or the fence of the take-over that copied the
    acknowledged bytes to a file of its own. `upload_id` names the quota's entry, the event and the file. `request_id`
    is that of the request that completed it, and `traceparent` is its place in that one's trace. `announced_as` is the
    X-File-ID of an upload that was deleted before it was announced. `is_cancelled` says that the transfer takes no more
    chunks.
    """

    tenant_id: str
    file_id: str
    upload_id: str
    total: int
    offset: int = 0
    fence: int = 0
    status: Status = Status.OPEN
    needs_copy: bool = False
    is_cancelled: bool = False
    generation: int = 0
    storage: StorageKind = StorageKind.FOLDER
    damage: Damage = Damage.NONE
    server_filename: str = ""
    size: int = 0
    sha256: str = ""
    version_uid: str = ""
    original_file_id: str = ""
    request_id: str = ""
    traceparent: str = ""

    @property
    def is_gone(self) -> bool:
        return self.is_cancelled or self.status is Status.DELETING


class TransferNotFound(NotFound):
    """No chunk came under this X-File-ID, or all traces of it are gone."""

    code = "transfer_not_found"

    def __init__(self) -> None:
        super().__init__("There is no transfer under this X-File-ID.")


class TransferComplete(Conflict):
    """All chunks came: what was a transfer is an installer."""

    code = "transfer_complete"

    def __init__(self) -> None:
        super().__init__("This transfer is complete: its file is an installer now.")


class TransferCancelled(Conflict):
    """The transfer under this X-File-ID was cancelled; the chunk may have been sent before that."""

    code = "transfer_cancelled"

    def __init__(self) -> None:
        super().__init__("This transfer was cancelled; send the file under another X-File-ID.")


class InstallerNotFound(NotFound):
    """No such file in this tenant, or one that is linked to another version."""

    code = "installer_not_found"


class InstallerMissing(NotFound):
    """The record is there and its file is not, or is of another size."""

    code = "installer_missing"


class InstallerDamaged(NotFound):
    """The file is there and is not what was uploaded."""

    code = "installer_damaged"


class RangeNotSatisfiable(Problem):
    """The file has not one byte of the range."""

    status = 416
    code = "range_not_satisfiable"

    def __init__(self, size: int) -> None:
        super().__init__(f"The file has {size} bytes.")
        self.size = size

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Range": f"bytes */{self.size}"}


class PreconditionFailed(Problem):
    """`If-Match` names other files than this one."""

    status = 412
    code = "precondition_failed"

    def __init__(self) -> None:
        super().__init__("The file is not the one that If-Match names.")


class UnexpectedChunk(InvalidRequest):
    """The chunk does not continue the transfer; nothing of it was kept. The detail says which byte is expected."""

    code = "unexpected_chunk"

    def __init__(self, reason: str, upload: Upload) -> None:
        super().__init__(f"{reason}.")
        add_expected_offset(self, upload)


def add_expected_offset(problem: Problem, upload: Upload | None) -> None:
    """Let a refused chunk's answer tell, in words and in numbers, where the client can go on.

    Without an `upload` no chunk was kept yet.
    """
    if upload is None:
        expected = "byte 0 is expected next"
    elif upload.offset < upload.total:
        expected = f"byte {upload.offset} of {upload.total} is expected next"
    else:
        expected = f"the transfer is complete at {upload.total} bytes, no byte is expected"
    problem.detail = f"{problem.detail.removesuffix('.')}; {expected}."
    problem.members = {"received": upload.offset, "total": upload.total} if upload else {"received": 0}


class StorageFull(Problem):
    """The disk has no room; the same chunk may be sent again once it has."""

    status = 500
    code = "storage_full"

    def __init__(self) -> None:
        super().__init__("The server's disk is full; send the same again later.", retry_after=30)


class TransferDamaged(Problem):
    """Bytes that were acknowledged are not on the disk any more."""

    status = 500
    code = "transfer_damaged"

    def __init__(self) -> None:
        super().__init__("The stored part of this transfer is damaged; begin again under another X-File-ID.")
