"""The bodies that upload_service reads."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import web
from multipart import MultipartSegment

from common.errors import BodyTooLarge, InvalidField, InvalidRequest
from common.http.bodies import FORM_LIMIT, field_text, multipart_events
from upload_service.content_range import suffix_of

BESIDE_LIMIT = 1 << 16  # bytes of other parts beside a chunk
ELSEWHERE = ("server_filename", "installer_url")  # fields of a one-call creation that name an installer, too


class ChunkForm:
    """The body of one chunk: exactly one part `chunk`, a file or a field (section 4.5); other parts are passed over."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.suffix = ""

    async def blocks(self) -> AsyncIterator[bytes]:
        """The chunk's bytes as they come.

        Raises:
            InvalidRequest: the body is malformed, or has no `chunk`, or more than one.
            BodyTooLarge: the other parts are too long.
        """
        seen = inside = False
        beside = 0
        async for event in multipart_events(self._request):
            if isinstance(event, MultipartSegment):
                inside = event.name == "chunk"
                if inside and seen:
                    raise InvalidField("chunk", "was sent more than once")
                if inside:
                    seen = True
                    self.suffix = suffix_of(event.filename or "")
            elif event and inside:
                yield event
            elif event:
                beside += len(event)
                if beside > BESIDE_LIMIT:
                    raise BodyTooLarge(f"The parts beside `chunk` are longer than {BESIDE_LIMIT} bytes.")
        if not seen:
            raise InvalidField("chunk", "is required")


class InstallerForm:
    """The body of a one-call creation: fields, and at most one installer in the part `file`.

    After the blocks are read, `fields` holds the names and texts of all fields in the order they came.
    """

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.suffix = ""
        self.fields: list[tuple[str, str]] = []
        self._elsewhere = ""

    @property
    def min_size(self) -> int:
        return max(0, (self._request.content_length or 0) - FORM_LIMIT)

    @property
    def max_size(self) -> int | None:
        return self._request.content_length

    async def blocks(self) -> AsyncIterator[bytes]:
        """The installer's bytes as they come.

        Raises:
            InvalidRequest: the body is malformed; or it has two installers, an empty one, or one and a
                `server_filename` or `installer_url` too: where that comes first, before any byte of the file.
            BodyTooLarge: its fields are too long.
        """
        segment: MultipartSegment | None = None
        value = bytearray()
        name = ""
        size = beside = 0
        files = 0
        async for event in multipart_events(self._request):
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
                self._keep(segment, bytes(value))
                self._check_one(size)
            elif segment.name == "file":
                size += len(event)
                self._check_one(size)
                yield event
            else:
                beside += len(event)
                if beside > FORM_LIMIT:
                    raise BodyTooLarge(f"The fields are longer than {FORM_LIMIT} bytes.")
                value += event
        if name and not size:
            raise InvalidField("file", "is empty")

    def _keep(self, segment: MultipartSegment, value: bytes) -> None:
        if segment.name and segment.name != "file" and segment.filename is None:
            self.fields.append((segment.name, field_text(segment, value)))
            if segment.name in ELSEWHERE and value:
                self._elsewhere = segment.name

    def _check_one(self, size: int) -> None:
        if size and self._elsewhere:
            raise InvalidRequest(f"Send either `file` or `{self._elsewhere}`, not both.")


def text_of(question: Mapping[str, Any], name: str) -> str:
    """A member that is text. Raises InvalidField when it is none."""
    value = question.get(name)
    if not isinstance(value, str) or not value or len(value) > 128:
        raise InvalidField(name, "must be text of 1 to 128 characters")
    return value


def texts_of(question: Mapping[str, Any], name: str) -> list[str]:
    """A member that is a list of texts. Raises InvalidField when it is none."""
    values = question.get(name)
    if not isinstance(values, list) or not all(isinstance(value, str) and 0 < len(value) <= 128 for value in values):
        raise InvalidField(name, "must be a list of texts of 1 to 128 characters")
    return values
