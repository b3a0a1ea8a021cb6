"""Uploads, the names of their files, and the errors about them."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath
from typing import NewType, Self

from common.errors import Conflict, InvalidRequest, NotFound, Problem

ServerFilename = NewType("ServerFilename", str)
FONTS = (".ttf", ".otf", ".ttc", ".otc", ".fnt")
SUFFIXES = ("", ".exe", ".msi", ".msix", ".appx", ".msixbundle", ".appxbundle", ".zip", *FONTS)
_SERVER_FILENAME = re.compile(r"[0-9a-f]{32}(?:" + "|".join(re.escape(suffix) for suffix in SUFFIXES) + r")")
FileId = NewType("FileId", str)
MAX_TOTAL = 2**40  # bytes of one installer
_FILE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~+=@-]{0,127}")
_RANGE = re.compile(r"bytes ([0-9]{1,13})-([0-9]{1,13})/([0-9]{1,13})")


class Status(StrEnum):
    """The status of an upload. Each change is one conditional update, so that only one of two rivals wins."""

    OPEN = "open"
    COMPLETE = "complete"
    LINKED = "linked"
    DELETING = "deleting"
    CANCELLED = "cancelled"  # Nothing is stored; the record refuses late chunks of this X-File-ID.


class StorageKind(StrEnum):
    """The kind of storage that has the file of a complete upload."""

    FOLDER = "folder"
    S3 = "s3"


class Damage(StrEnum):
    """The damage that the last scrub found in a stored file."""

    NONE = ""
    MISSING = "missing"
    ALTERED = "altered"
    UNREADABLE = "unreadable"  # The storage responds, but cannot read this file.


@dataclass(frozen=True)
class Upload:
    """A record of the collection `uploads`: a transfer, and the installer that it becomes.

    - `total`, `offset` and `size` are bytes. The first `offset` bytes are stored and never change. `total` is 0 while
      the length of a file sent in one request is unknown.
    - `fence` counts the leases, and after them the claims.
    - `needs_copy`: a lease expired before its holder released it. That holder may still write to the file.
    - `generation` tells the files of a transfer apart: 0, or the fence of the holder that copied the file.
    - `upload_id` is also the id of the quota's row and of the event, and the name of the file.
    - `original_file_id` is the X-File-ID of an upload that was deleted before it was announced.
    - `uploader` is the username of the caller who began it.
    - `is_withheld`: its version is stopped or waits for its scan. `is_infected` is the scanner's current verdict. No
      download opens such a file.
    - `request_id` and `traceparent` are those of the request that completed it.
    - `is_cancelled`: the transfer takes no more chunks.
    - `certain_until`: no other process can have a lease that is kept since an earlier chunk, until this time by
      `uploads.store.clock`. A cancellation may have come unseen. 0 for a lease that is not kept.
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
    certain_until: float = field(default=0, compare=False)  # not in the record
    generation: int = 0
    storage: StorageKind = StorageKind.FOLDER
    damage: Damage = Damage.NONE
    server_filename: str = ""
    size: int = 0
    sha256: str = ""
    version_uid: str = ""
    original_file_id: str = ""
    uploader: str = ""
    is_withheld: bool = False
    is_infected: bool = False
    request_id: str = ""
    traceparent: str = ""

    @property
    def is_kept(self) -> bool:
        return bool(self.certain_until)

    @property
    def is_gone(self) -> bool:
        return self.is_cancelled or self.status is Status.DELETING

    @property
    def log_fields(self) -> dict[str, str]:
        return {"tenant_id": self.tenant_id, "server_filename": self.server_filename}


class TransferNotFound(NotFound):
    """No transfer has this X-File-ID."""

    code = "transfer_not_found"
    text = "There is no transfer under this X-File-ID."


class TransferComplete(Conflict):
    """All chunks were received."""

    code = "transfer_complete"
    text = "The upload is already complete."


class TransferCancelled(Conflict):
    """The transfer was cancelled; the chunk may have been sent before that."""

    code = "transfer_cancelled"
    text = "This transfer was cancelled; send the file under another X-File-ID."


class InstallerNotFound(NotFound):
    """The tenant has no such file, or the file is linked to another version."""

    code = "installer_not_found"
    text = "There is no installer of this name."


class InstallerInUse(Conflict):
    code = "installer_in_use"
    text = "A version has this file. Delete the version instead."


class InstallerMissing(NotFound):
    """The file of a record is missing or has another size."""

    code = "installer_missing"
    text = "The file of this installer is missing."


class InstallerDamaged(NotFound):
    """The file is not what was uploaded."""

    code = "installer_damaged"
    text = "The file of this installer is damaged; upload it again."


class InstallerWithheld(NotFound):
    """The version of the file is held or rolled back."""

    code = "installer_withheld"
    text = "This installer is withheld: its version is stopped, or waits for its scan."


class InstallerInfected(NotFound):
    """The scanner found malware in the file."""

    code = "installer_infected"
    text = "This installer is withheld: the malware scanner found something in it."


class RangeNotSatisfiable(Problem):
    """The file has no byte of the range."""

    status = 416
    code = "range_not_satisfiable"

    def __init__(self, size: int) -> None:
        super().__init__(f"The file has {size} bytes.")
        self.size = size

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Range": f"bytes */{self.size}"}


class PreconditionFailed(Problem):
    """`If-Match` names other files."""

    status = 412
    code = "precondition_failed"
    text = "The file is not the one that If-Match names."


class UnexpectedChunk(InvalidRequest):
    """The chunk does not continue the transfer, and is not stored. The detail says which byte is expected."""

    code = "unexpected_chunk"

    def __init__(self, reason: str, upload: Upload) -> None:
        super().__init__(f"{reason}.")
        add_expected_offset(self, upload)


def add_expected_offset(problem: Problem, upload: Upload | None) -> None:
    """Add the byte that is expected next to the response for a refused chunk, as text and as numbers.

    Without an `upload` no chunk is stored yet.
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
    """The disk is full; the same chunk may be sent again when it has room."""

    status = 500
    code = "storage_full"
    text = "The server's disk is full; send the same again later."
    retry_after = 30


class TransferDamaged(Problem):
    """Acknowledged bytes are missing on the disk."""

    status = 500
    code = "transfer_damaged"
    text = "The stored part of this transfer is damaged; begin again under another X-File-ID."


def parse_server_filename(text: str) -> ServerFilename | None:
    """The name if it has the form that this service gives names, else None."""
    return ServerFilename(text) if _SERVER_FILENAME.fullmatch(text) else None


def plain_name(text: str) -> str:
    """The name of one file or folder. Raises ValueError for a name that leads to another folder."""
    if text in {"", ".", ".."} or not {"/", "\\", "\0"}.isdisjoint(text):
        raise ValueError("not one plain name")
    return text


def suffix_of(file_name: str) -> str:
    """The ending of a file's name if it is an installer's, else ""."""
    suffix = PurePath(file_name).suffix.lower()
    return suffix if suffix in SUFFIXES else ""


def parse_file_id(values: list[str]) -> FileId:
    """Parse X-File-ID: a letter or digit, then at most 127 of `A-Za-z0-9._~+=@-`.

    Raises InvalidRequest, also for a header that is missing or sent twice.
    """
    file_id = _single("X-File-ID", values)
    if not _FILE_ID.fullmatch(file_id):
        raise InvalidRequest(
            "X-File-ID must be 1 to 128 characters of A-Z a-z 0-9 . _ ~ + = @ - and begin with a letter or digit."
        )
    return FileId(file_id)


@dataclass(frozen=True)
class ContentRange:
    """The bytes `start` to `end`, inclusive, of a file of `total` bytes: 0 <= start <= end < total <= 1 TiB."""

    start: int
    end: int
    total: int

    @property
    def length(self) -> int:
        return self.end - self.start + 1

    @property
    def is_last(self) -> bool:
        return self.end + 1 == self.total

    @classmethod
    def parse(cls, values: list[str]) -> Self:
        """Parse Content-Range: `bytes <start>-<end>/<total>`.

        Raises InvalidRequest, also for a header that is missing or sent twice.
        """
        match = _RANGE.fullmatch(_single("Content-Range", values))
        if match is None:
            raise InvalidRequest("Content-Range must be: bytes <start>-<end>/<total>.")
        start, end, total = (int(number) for number in match.groups())
        if not start <= end < total:
            raise InvalidRequest("Content-Range must lie inside the file: start <= end < total.")
        if total > MAX_TOTAL:
            raise InvalidRequest(f"Content-Range: a file may have at most {MAX_TOTAL} bytes.")
        return cls(start, end, total)


def _single(header: str, values: list[str]) -> str:
    if not values:
        raise InvalidRequest(f"The header {header} is missing.")
    if len(values) > 1:
        raise InvalidRequest(f"The header {header} was sent more than once.")
    return values[0]
