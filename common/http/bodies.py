"""The bytes of request bodies, and the parts of multipart ones: what cannot be understood is answered 400.

aiohttp's own `request.post()` answers 500 to a dozen kinds of malformed body, so bodies are read here instead. And
whether an answer's body is to be sent, and how compressed: what a request says of that is understood here alone.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from common.errors import BodyTooLarge, InvalidRequest

FORM_LIMIT = 1 << 20  # bytes of a whole form, small files included
FIELDS_LIMIT = 1000
TIMEOUT = 30.0  # seconds of waiting for the next `PROGRESS` bytes of a body
PROGRESS = 64 << 10  # bytes
CODINGS = ("gzip", "zstd")  # of answers that may be compressed, in our order of preference for equal ones of a caller
_WISH = re.compile(r"([^\s;]+)(?:\s*;\s*q\s*=\s*([01](?:\.[0-9]{0,3})?))?")
_TAG = re.compile(r'"[^"]*"')


async def body(request: web.Request, *, limit: int | None = None, joined: bool = True) -> AsyncIterator[bytes]:
    """The bytes of the body as they come, at most `limit`.

    `joined` copies all that have come into one block: less work for who parses them. Without it they are passed on as
    they are, in the least memory.

    Raises:
        InvalidRequest: the transfer is broken, compressed, or too slow: less than `PROGRESS` bytes in `TIMEOUT`
            seconds of waiting for them.
        BodyTooLarge: it is longer than `limit`.
    """
    _check_head(request, limit)
    content = request.content
    joined = joined or request.content_length is None  # The sender chooses how small the pieces without a length are.
    received, pace = 0, ReadRate()
    while True:
        try:
            # What is all there needs no limit of time, which costs as much as a small form.
            async with nullcontext() if content.is_eof() else pace:
                block = await content.readany() if joined else (await content.readchunk())[0]
        except (web.RequestPayloadError, HttpProcessingError):
            raise InvalidRequest("The body is broken or ended early.") from None
        if not block:
            return
        received += len(block)
        if limit is not None and received > limit:
            raise BodyTooLarge(f"The body is longer than {limit} bytes.", limit=limit)
        pace.record(len(block))
        yield block


def _check_head(request: web.Request, limit: int | None) -> None:
    if request.headers.get("Content-Encoding", "identity").casefold() != "identity":
        raise InvalidRequest("A compressed body is not accepted.")
    if limit is not None and (request.content_length or 0) > limit:
        raise BodyTooLarge(f"The body is longer than {limit} bytes.", limit=limit)


class ReadRate:
    """How fast a body comes. Whoever waits for more of it does so `async with` this.

    Raises:
        InvalidRequest: less than `PROGRESS` bytes came in `TIMEOUT` seconds of waiting for them.
    """

    def __init__(self) -> None:
        self._unmarked = 0
        self._left = TIMEOUT

    def record(self, count: int) -> None:
        """So many bytes have come."""
        self._unmarked += count
        if self._unmarked >= PROGRESS:
            self._unmarked, self._left = 0, TIMEOUT

    async def __aenter__(self) -> None:
        self._started = time.monotonic()
        self._limit = asyncio.timeout(self._left)
        await self._limit.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        try:
            await self._limit.__aexit__(*raised)
        except TimeoutError:
            raise InvalidRequest("The body came too slowly.") from None
        self._left -= time.monotonic() - self._started


async def read_body(request: web.Request, limit: int) -> bytes:
    """All of the body. Raises as `body` does."""
    content = request.content
    if not content.is_eof() or content.exception() or content.total_bytes > limit:
        return b"".join([block async for block in body(request, limit=limit)])
    _check_head(request, limit)
    return content.read_nowait()  # A small form comes with its head.


async def read_question(request: web.Request) -> Mapping[str, Any]:
    """The JSON object that another service sent.

    Raises:
        InvalidRequest: it is none.
        BodyTooLarge: it is longer than `FORM_LIMIT`.
    """
    try:
        question = orjson.loads(await read_body(request, FORM_LIMIT))
    except orjson.JSONDecodeError:
        raise InvalidRequest("The body must be JSON.") from None
    if not isinstance(question, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return question


async def multipart_events(
    request: web.Request, *, limit: int | None = None
) -> AsyncIterator[MultipartSegment | bytes | None]:
    """A multipart body as it comes: a segment's head, its bytes in blocks, None at its end.

    Raises:
        InvalidRequest: the body is not well-formed multipart.
        BodyTooLarge: it is longer than `limit`, heads included.
    """
    _, options = parse_options_header(request.headers.get("Content-Type", ""))
    try:
        parser = PushMultipartParser(options.get("boundary", ""), max_segment_count=FIELDS_LIMIT)
        async for block in body(request, limit=limit):
            if parser.closed or not block:
                continue
            for event in parser.parse(block):
                yield event
        parser.close()
    except (MultipartError, UnicodeError):
        raise InvalidRequest("The multipart body is malformed.") from None


def field_text(segment: MultipartSegment, value: bytes) -> str:
    """The text of a multipart field. Raises InvalidRequest when it is not UTF-8."""
    if (segment.charset or "utf-8").casefold() not in {"utf-8", "utf8"}:
        raise InvalidRequest("A form must be in UTF-8.")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("A form must be in UTF-8.") from None


def negotiate_encoding(request: web.Request) -> str:
    """Which of `CODINGS` a request's `Accept-Encoding` asks for most; "" for none (RFC 9110, section 12.5.3)."""
    return _preferred(",".join(request.headers.getall("Accept-Encoding", ())))


@lru_cache(maxsize=256)
def _preferred(accepted: str) -> str:
    named = [found for part in accepted.split(",") if (found := _WISH.match(part.strip()))]
    wishes = {found[1].lower(): float(found[2] or 1) for found in named}
    others = wishes.get("*", 0.0)
    best = max(CODINGS, key=lambda coding: wishes.get(coding, others))
    wish = wishes.get(best, others)
    # Who takes neither a coding of ours nor an answer without one gets the latter, as who asks for nothing.
    return best if wish and wish >= wishes.get("identity", others) else ""


def if_none_match(request: web.Request, tag: str) -> bool:
    """Whether `If-None-Match` says that the caller has what `tag` names, or anything there is (RFC 9110, 13.1.2)."""
    known = ",".join(request.headers.getall("If-None-Match", ()))
    return known != "" and (known == tag or known.strip() == "*" or tag.removeprefix("W/") in _TAG.findall(known))
