"""Reads request bodies and multipart segments, and the headers that negotiate a response's body.

aiohttp's `request.post()` answers 500 to a dozen kinds of malformed bodies; here each of them is answered 400.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from common.errors import BodyTooLarge, InvalidRequest

FORM_LIMIT = 1 << 20  # bytes of a whole form, small files included
FIELDS_LIMIT = 1000
TIMEOUT = 30.0  # seconds to wait for `PROGRESS` bytes of a body
PROGRESS = 64 << 10  # bytes
CODINGS = ("gzip", "zstd")  # of compressed responses; the first is preferred for equal weights
_WEIGHTED_CODING = re.compile(r"([^\s;]+)(?:\s*;\s*q\s*=\s*([01](?:\.[0-9]{0,3})?))?")
_TAG = re.compile(r'"[^"]*"')


async def body(request: web.Request, *, limit: int | None = None, joined: bool = True) -> AsyncIterator[bytes]:
    """Yield the body as it arrives, at most `limit` bytes.

    `joined` copies all arrived bytes into one block, which is less work for a parser but needs more memory.

    Raises:
        InvalidRequest: the transfer is broken, compressed, or too slow:
            fewer than `PROGRESS` bytes arrived in `TIMEOUT` seconds of waiting.
        BodyTooLarge: it is longer than `limit`.
    """
    _check_head(request, limit)
    content = request.content
    joined = joined or request.content_length is None  # Without a length, the sender chooses how small the pieces are.
    received, progress, remaining = 0, 0, TIMEOUT
    while True:
        started = time.monotonic()
        try:
            # A complete body needs no time limit, which costs as much as a small form.
            async with nullcontext() if content.is_eof() else asyncio.timeout(remaining):
                block = await content.readany() if joined else (await content.readchunk())[0]
        except TimeoutError:
            raise InvalidRequest("The body came too slowly.") from None
        except (web.RequestPayloadError, HttpProcessingError):
            raise InvalidRequest("The body is broken or ended early.") from None
        if not block:
            return
        received += len(block)
        if limit is not None and received > limit:
            raise BodyTooLarge(f"The body is longer than {limit} bytes.", limit=limit)
        progress, remaining = progress + len(block), remaining - (time.monotonic() - started)
        if progress >= PROGRESS:
            progress, remaining = 0, TIMEOUT
        yield block


def _check_coding(request: web.Request) -> None:
    if request.headers.get("Content-Encoding", "identity").casefold() != "identity":
        raise InvalidRequest("A compressed body is not accepted.")


def _check_head(request: web.Request, limit: int | None) -> None:
    _check_coding(request)
    if limit is not None and (request.content_length or 0) > limit:
        raise BodyTooLarge(f"The body is longer than {limit} bytes.", limit=limit)


async def read_body(request: web.Request, limit: int) -> bytes:
    """The whole body. Raises as `body` does."""
    content = request.content
    if not content.is_eof() or content.exception() or content.total_bytes > limit:
        return b"".join([block async for block in body(request, limit=limit)])
    _check_coding(request)
    return content.read_nowait()  # A small form arrives with its head.


async def read_json(request: web.Request) -> Mapping[str, Any]:
    """The JSON object of a request's body, of at most `FORM_LIMIT` bytes. Raises InvalidRequest or BodyTooLarge."""
    try:
        data = orjson.loads(await read_body(request, FORM_LIMIT))
    except orjson.JSONDecodeError:
        raise InvalidRequest("The body must be JSON.") from None
    if not isinstance(data, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return data


async def multipart_events(
    request: web.Request, *, limit: int | None = None
) -> AsyncIterator[MultipartSegment | bytes | None]:
    """Parse a multipart body as it arrives: the head of each segment, its bytes in blocks, None at its end.

    Raises InvalidRequest for malformed multipart, and BodyTooLarge above `limit` bytes, heads included.
    """
    with well_formed():
        parser = multipart_parser(request.headers.get("Content-Type", ""))
        async for block in body(request, limit=limit):
            if parser.closed or not block:
                continue
            for event in parser.parse(block):
                yield event
        parser.close()


def segment_names(content_type: str, body: bytes) -> Sequence[str]:
    """The names of the segments of a whole multipart body. Raises InvalidRequest for malformed multipart."""
    with well_formed():
        parser = multipart_parser(content_type)
        names = [event.name for event in parser.parse(body) if isinstance(event, MultipartSegment)]
        parser.close()
        return names


def multipart_parser(content_type: str) -> PushMultipartParser:
    """A parser for the segments of a body. Raises MultipartError."""
    _, options = parse_options_header(content_type)
    return PushMultipartParser(options.get("boundary", ""), max_segment_count=FIELDS_LIMIT)


@contextmanager
def well_formed() -> Iterator[None]:
    """Raise InvalidRequest for malformed multipart."""
    try:
        yield
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
    """The coding of `CODINGS` that `Accept-Encoding` prefers; "" for none (RFC 9110, section 12.5.3)."""
    return _preferred(",".join(request.headers.getall("Accept-Encoding", ())))


@lru_cache(maxsize=256)
def _preferred(accepted: str) -> str:
    matches = [match for part in accepted.split(",") if (match := _WEIGHTED_CODING.match(part.strip()))]
    weights = {match[1].lower(): float(match[2] or 1) for match in matches}
    default = weights.get("*", 0.0)
    best = max(CODINGS, key=lambda coding: weights.get(coding, default))
    weight = weights.get(best, default)
    # A caller who accepts neither our codings nor `identity` gets `identity`.
    return best if weight and weight >= weights.get("identity", default) else ""


def if_match(request: web.Request, revision: str) -> bool:
    """Whether `If-Match` allows a change of this revision: it names it, is `*`, or is missing."""
    return request.if_match is None or bool({"*", revision} & {tag.value for tag in request.if_match})


def if_none_match(request: web.Request, tag: str) -> bool:
    """Whether `If-None-Match` names `tag` or is `*` (RFC 9110, section 13.1.2)."""
    known = ",".join(request.headers.getall("If-None-Match", ()))
    return known != "" and (known == tag or known.strip() == "*" or tag.removeprefix("W/") in _TAG.findall(known))
