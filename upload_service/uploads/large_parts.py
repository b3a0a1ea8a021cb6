"""Parses a multipart body with a file that is so large that a worker thread receives it from the socket.

The body is given to the parser in pieces that end with the head of a part. After the head of the file, the parser keeps
no byte, so the next one that it sees may be that of the delimiter after the file.
"""

from collections.abc import AsyncIterator

from aiohttp import web
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from common.errors import InvalidRequest
from common.http import bodies, socket_body
from common.http.socket_body import SocketBody

HEAD_END = b"\r\n\r\n"
MAX_HEAD = 16 << 10  # bytes
MAX_HEADS = 64  # before that of the file; a form has a dozen
END = len(b"--\r\n")  # after the last delimiter


async def large_part_events(
    request: web.Request, name: str, length: int | None
) -> AsyncIterator[MultipartSegment | bytes | SocketBody | None]:
    """As `multipart_events`. The event after the head of a file `name` may be one that is still in the socket.

    Such a file has `length` bytes. If that is unknown, the last `FORM_LIMIT` bytes of the body are never part of it.
    """
    blocks, buffer, position = bodies.body(request), b"", 0
    heads = MAX_HEADS if SocketBody.can_receive(request) else 0
    _, options = parse_options_header(request.headers.get("Content-Type", ""))
    try:
        parser = PushMultipartParser(options.get("boundary", ""), max_segment_count=bodies.FIELDS_LIMIT)
        delimiter = b"\r\n--" + parser.boundary
        while True:
            while not buffer or (heads and HEAD_END not in buffer and len(buffer) < MAX_HEAD):
                block = await anext(blocks, b"")
                buffer += block
                position += len(block)
                if not block:
                    heads = 0
                    break
            if not buffer:
                break
            piece, end, buffer = buffer.partition(HEAD_END) if heads else (buffer, b"", b"")
            heads = heads - 1 if end else 0
            event = None
            if not parser.closed:
                for event in parser.parse(piece + end):
                    yield event
            if not heads or not isinstance(event, MultipartSegment) or not _is_file(event, name):
                continue
            limit = (request.content_length or 0) - position + len(buffer)  # bytes that follow the head
            limit = limit - bodies.FORM_LIMIT if length is None else min(limit, length + len(delimiter) + END)
            if limit - len(buffer) >= socket_body.LEAST:
                part = SocketBody(request, buffer, limit, delimiter)
                yield part
                buffer, heads = part.rest, 0
        parser.close()
    except (MultipartError, UnicodeError):
        raise InvalidRequest("The multipart body is malformed.") from None


def _is_file(segment: MultipartSegment, name: str) -> bool:
    """Whether a part is a file of this name. The parser checks a length of its own."""
    return segment.name == name and bool(segment.filename) and segment.header("Content-Length") is None
