"""The request bodies of upload_service."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import web
from multipart import MultipartSegment

from common.errors import BodyTooLarge, InvalidField, InvalidRequest
from common.http.bodies import FORM_LIMIT, field_text
from common.http.socket_body import SocketBody
from upload_service.scanning.store import Withholding
from upload_service.storage.file_names import suffix_of
from upload_service.uploads.large_parts import large_part_events

OTHER_PARTS_LIMIT = 1 << 16  # bytes of the parts beside a chunk
ALTERNATIVES = ("server_filename", "installer_url")  # fields of a one-call form that name an installer


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


def text_of(body: Mapping[str, Any], name: str) -> str:
    """The text under a name. Raises InvalidField."""
    value = body.get(name)
    if not isinstance(value, str) or not value or len(value) > 128:
        raise InvalidField(name, "must be text of 1 to 128 characters")
    return value


def texts_of(body: Mapping[str, Any], name: str) -> list[str]:
    """The list of texts under a name. Raises InvalidField."""
    values = body.get(name)
    if not isinstance(values, list) or not all(isinstance(value, str) and 0 < len(value) <= 128 for value in values):
        raise InvalidField(name, "must be a list of texts of 1 to 128 characters")
    return values


def days_of(body: Mapping[str, Any]) -> int:
    """The number of days under `days`. Raises InvalidField."""
    days = body.get("days")
    if not isinstance(days, int) or not 1 <= days <= 400:
        raise InvalidField("days", "must be a whole number from 1 to 400")
    return days


def withholdings_of(body: Mapping[str, Any]) -> list[Withholding]:
    """The files to withhold, under `versions`. Raises InvalidField."""
    rows = body.get("versions")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidField("versions", "must be a list of objects")
    changes = [Withholding(text_of(row, "uid"), row.get("withheld"), row.get("fence")) for row in rows]
    if not all(type(change.is_withheld) is bool and type(change.fence) is int for change in changes):
        raise InvalidField("versions", "must have `withheld`, true or false, and `fence`, a whole number")
    return changes
