"""The requests of uploads: chunks, the state and the cancellation of a transfer, and one-call forms."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web
from multipart import MultipartSegment
from prometheus_client import Counter

from common.errors import BodyTooLarge, InvalidField, InvalidRequest
from common.http.bodies import FORM_LIMIT, field_text
from common.http.middleware import audit, caller_of, json_response
from common.http.zero_copy.socket_body import SocketBody, large_part_events
from common.telemetry.metrics import Metrics
from upload_service.model import ContentRange, Status, Upload, parse_file_id, suffix_of
from upload_service.uploads.service import Transfers

OTHER_PARTS_LIMIT = 1 << 16  # bytes of the parts beside a chunk
ALTERNATIVES = ("server_filename", "installer_url")  # fields of a one-call form that name an installer


class TransferMetrics:
    """The bytes that were received and sent, the downloads and the uploads that were completed."""

    def __init__(self, metrics: Metrics) -> None:
        self.received = metrics.counter("pkgrepo_upload_bytes_total", "Bytes of uploads' bodies that came.")
        self.sent = metrics.counter("pkgrepo_download_bytes_total", "Bytes of downloads that were sent.")
        self.downloads = metrics.counter(
            "pkgrepo_downloads_total", "Complete downloads, each client once for a file and hour.", "tenant_id"
        )
        self.finished = metrics.counter("pkgrepo_uploads_finished_total", "Uploads that became whole.")


TRANSFERS = web.AppKey("transfers", Transfers)
TRANSFER_METRICS = web.AppKey("transfer_metrics", TransferMetrics)

routes = web.RouteTableDef()


@routes.post("/{tenant_id}/upload_package_version")
async def upload_package_version(request: web.Request) -> web.Response:
    caller, transfers = caller_of(request), request.app[TRANSFERS]
    file_id = parse_file_id(request.headers.getall("X-File-ID", []))
    async with transfers.report_expected_offset(caller, file_id):
        span = ContentRange.parse(request.headers.getall("Content-Range", []))
        with count_bytes(request.app[TRANSFER_METRICS].received, lambda: request.content.total_bytes):
            upload = await transfers.append(caller, file_id, span, ChunkForm(request))
    if upload.status is not Status.OPEN:
        audit(request, server_filename=upload.server_filename, sha256=upload.sha256)
    return json_response(progress(upload))


@routes.get("/{tenant_id}/upload_package_version")
async def transfer_state(request: web.Request) -> web.Response:
    file_id = parse_file_id(request.headers.getall("X-File-ID", []))
    upload = await request.app[TRANSFERS].find(caller_of(request), file_id)
    return json_response(progress(upload))


@routes.delete("/{tenant_id}/upload_package_version")
async def cancel_transfer(request: web.Request) -> web.Response:
    file_id = parse_file_id(request.headers.getall("X-File-ID", []))
    audit(request, file_id=file_id)
    await request.app[TRANSFERS].cancel(caller_of(request), file_id)
    return json_response({"Message": "Transfer was deleted successfully!"})


@routes.post("/{tenant_id}/store_installer")
async def store_installer(request: web.Request) -> web.Response:
    form = InstallerForm(request)
    with count_bytes(request.app[TRANSFER_METRICS].received, lambda: request.content.total_bytes):
        upload = await request.app[TRANSFERS].store_whole(
            caller_of(request), form, min_size=form.min_size, max_size=request.content_length
        )
    return json_response(stored(form, upload))


@contextmanager
def count_bytes(counter: Counter, bytes_so_far: Callable[[], int]) -> Iterator[None]:
    """Count the bytes at the end of the block, also if it fails."""
    try:
        yield
    finally:
        counter.inc(bytes_so_far())


class _FileForm(ABC):
    """A form with one large file. `suffix` is the ending of its name, known after its first block."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.suffix = ""

    async def blocks(self) -> AsyncIterator[bytes]:
        """The file's bytes as they arrive; raises as `large_blocks`."""
        async for block in self.large_blocks(0):
            if isinstance(block, bytes):
                yield block

    @abstractmethod
    def large_blocks(self, length: int | None) -> AsyncIterator[bytes | SocketBody]:
        """As `blocks`; a file of `length` bytes, or of unknown length, may be a block that is still in the socket."""


class ChunkForm(_FileForm):
    """The body of one chunk: exactly one part `chunk`, a file or a field; other parts are ignored."""

    async def large_blocks(self, length: int | None) -> AsyncIterator[bytes | SocketBody]:
        """The chunk's bytes.

        Raises:
            InvalidRequest: the body is malformed, or has no `chunk`, or more than one.
            BodyTooLarge: the other parts are too long.
        """
        has_chunk = is_chunk = False
        other_size = 0
        async for event in large_part_events(self._request, "chunk", length):
            if isinstance(event, MultipartSegment):
                is_chunk = event.name == "chunk"
                if is_chunk and has_chunk:
                    raise InvalidField("chunk", "was sent more than once")
                if is_chunk:
                    has_chunk = True
                    self.suffix = suffix_of(event.filename or "")
            elif event is None:
                continue
            elif is_chunk:
                yield event
            else:
                other_size += len(event)
                if other_size > OTHER_PARTS_LIMIT:
                    raise BodyTooLarge(f"The parts beside `chunk` are longer than {OTHER_PARTS_LIMIT} bytes.")
        if not has_chunk:
            raise InvalidField("chunk", "is required")


class InstallerForm(_FileForm):
    """The body of a one-call form: fields, and at most one installer in the part `file`.

    After the blocks were read, `fields` has the names and values of all fields in their order.
    """

    def __init__(self, request: web.Request) -> None:
        super().__init__(request)
        self.fields: list[tuple[str, str]] = []
        self._alternative = ""

    @property
    def min_size(self) -> int:
        """The least size of the installer in bytes, as known before reading."""
        return max(0, (self._request.content_length or 0) - FORM_LIMIT)

    async def large_blocks(self, length: int | None) -> AsyncIterator[bytes | SocketBody]:
        """The installer's bytes.

        Raises:
            InvalidRequest: the body is malformed, or has two installers or an empty one. Or it has an installer and
                another field that names one; if that field is first, before any byte of the file.
            BodyTooLarge: the fields are too long.
        """
        segment: MultipartSegment | None = None
        value = bytearray()
        name = ""
        size = fields_size = 0
        files = 0
        async for event in large_part_events(self._request, "file", length):
            if isinstance(event, MultipartSegment):
                segment, value = event, bytearray()
                if event.name == "file" and (event.filename or event.filename is None):
                    files += 1
                    name = event.filename or ""
                    self.suffix = suffix_of(name)
                if files > 1:
                    raise InvalidField("file", "was sent more than once")
            elif segment is None:
                continue
            elif event is None:
                self._add_field(segment, bytes(value))
                self._check_alternative(has_file=size > 0)
            elif segment.name == "file":
                self._check_alternative(has_file=True)
                yield event
                size += len(event)
            elif isinstance(event, bytes):
                fields_size += len(event)
                if fields_size > FORM_LIMIT:
                    raise BodyTooLarge(f"The fields are longer than {FORM_LIMIT} bytes.")
                value += event
        if name and not size:
            raise InvalidField("file", "is empty")

    def _add_field(self, segment: MultipartSegment, value: bytes) -> None:
        if segment.name and segment.name != "file":
            # The gateway decides on a file under another name: it counts as an empty field.
            text = field_text(segment, value) if segment.filename is None else ""
            self.fields.append((segment.name, text))
            if segment.name in ALTERNATIVES and text:
                self._alternative = segment.name

    def _check_alternative(self, *, has_file: bool) -> None:
        if has_file and self._alternative:
            raise InvalidRequest(f"Send either `file` or `{self._alternative}`, not both.")


def progress(upload: Upload) -> dict[str, Any]:
    """The state of a transfer, in the responses to a chunk and to a query."""
    if upload.status is Status.OPEN:
        return {"Message": "Chunk received", "received": upload.offset, "total": upload.total, "complete": False}
    return {
        "Message": "Upload complete",
        "received": upload.size,
        "total": upload.size,
        "complete": True,
        "server_filename": upload.server_filename,
        "sha256": upload.sha256,
    }


def stored(form: InstallerForm, upload: Upload | None) -> dict[str, Any]:
    """The content of a one-call form; what concerns the file is null without one."""
    return {
        "fields": form.fields,
        "server_filename": upload.server_filename if upload else None,
        "sha256": upload.sha256 if upload else None,
        "size": upload.size if upload else None,
    }
