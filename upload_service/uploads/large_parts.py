"""Parses a multipart body whose first part is so large that a worker thread receives it from the socket."""

from collections.abc import AsyncIterator, Sequence

from aiohttp import web
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from common.errors import InvalidRequest
from common.http import bodies
from common.http.socket_body import SocketBody

HEAD_END = b"\r\n\r\n"
MAX_HEAD = 16 << 10  # bytes


async def large_part_events(
    request: web.Request, name: str, length: int
) -> AsyncIterator[MultipartSegment | bytes | SocketBody | None]:
    """As `multipart_events`. A first part `name` of `length` bytes may be one block that is still in the socket.

    Its bytes are not searched for the delimiter, which must follow them. Otherwise more bytes follow, or a bad body.
    """
    blocks, prefix = bodies.body(request), b""
    _, options = parse_options_header(request.headers.get("Content-Type", ""))
    try:
        parser = PushMultipartParser(options.get("boundary", ""), max_segment_count=bodies.FIELDS_LIMIT)
        if SocketBody.can_receive(request, 0, length):
            while HEAD_END not in prefix and len(prefix) < MAX_HEAD and (block := await anext(blocks, b"")):
                prefix += block
            head, end, prefix = prefix.partition(HEAD_END)
            events = list(parser.parse(head + end))
            for event in events:
                yield event
            left, position = length - len(prefix), len(head + end + prefix)
            if _is_large(events, name) and SocketBody.can_receive(request, position, left):
                if prefix:
                    yield prefix
                prefix = b""
                yield SocketBody(request, left)
        while block := prefix or await anext(blocks, b""):
            prefix = b""
            if not parser.closed:
                for event in parser.parse(block):
                    yield event
        parser.close()
    except (MultipartError, UnicodeError):
        raise InvalidRequest("The multipart body is malformed.") from None


def _is_large(events: Sequence[MultipartSegment | bytes | None], name: str) -> bool:
    """Whether these are the head of a part of this name, and nothing else; a length of its own is for the parser."""
    match events:
        case [MultipartSegment() as segment]:
            return segment.name == name and segment.header("Content-Length") is None
    return False
