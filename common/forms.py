"""Request bodies, read strictly: what cannot be understood is answered 400, and nothing reaches a driver unchecked.

aiohttp's own `request.post()` answers 500 to a dozen kinds of malformed body, so bodies are read here instead.
"""

import asyncio
import re
import time
import unicodedata
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from common.errors import BodyTooLarge, InvalidField, InvalidRequest

FORM_LIMIT = 1 << 20  # bytes of a whole form, small files included
FIELDS_LIMIT = 1000
PATIENCE = 30.0  # seconds of waiting for the next `PROGRESS` bytes of a body
PROGRESS = 64 << 10  # bytes
MAX_INTEGER = 2**31 - 1

Choice = TypeVar("Choice", bound=StrEnum)
_DIRECTION_MARKS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_DIGITS = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True)
class Form:
    """The fields of a request, each name with its values in the order sent, and its small files by name."""

    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    def get(self, name: str, *other_spellings: str) -> str | None:
        """The last value of a field, one that says something before an empty one; None when it was not sent.

        It is not checked, see `text`.
        """
        sent = [self.fields[spelling][-1] for spelling in (name, *other_spellings) if self.fields.get(spelling)]
        return next((value for value in sent if value), sent[0] if sent else None)

    def text(self, name: str, *, limit: int, required: bool = True, lines: bool = False) -> str:
        """A field's text, 1 to `limit` characters when required, else "" allowed; `lines` allows line breaks.

        Raises:
            InvalidField: it is missing, too long, or holds characters that are not text.
        """
        value = clean(name, self.get(name) or "", limit=limit, lines=lines)
        if required and not value:
            raise InvalidField(name, "is required")
        return value

    def choice(self, name: str, kind: type[Choice], default: Choice | None = None) -> Choice:
        """One of an enumeration's values, in any letter case, `-` and `_` alike.

        Raises:
            InvalidField: it is another value, or missing where there is no default.
        """
        value = self.get(name)
        if not value:
            if default is None:
                raise InvalidField(name, f"is required; one of {', '.join(kind)}")
            return default
        for member in kind:
            if value.casefold().replace("_", "-") == member.casefold().replace("_", "-"):
                return member
        raise InvalidField(name, f"must be one of {', '.join(kind)}")

    def integer(self, name: str, *other_spellings: str, default: int) -> int:
        """A whole number 0..2**31-1 in ASCII digits.

        Raises:
            InvalidField: it is anything else.
        """
        value = self.get(name, *other_spellings)
        if value is None or value == "":
            return default
        if not _DIGITS.fullmatch(value) or int(value) > MAX_INTEGER:
            raise InvalidField(name, f"must be a whole number from 0 to {MAX_INTEGER}")
        return int(value)

    def flag(self, name: str) -> bool:
        """A required yes or no: `1`, `0`, `true` or `false`. Raises InvalidField."""
        value = self.get(name)
        if value is None:
            raise InvalidField(name, "is required")
        return flag(name, value)

    def texts(self, name: str, *, limit: int, most: int = FIELDS_LIMIT) -> tuple[str, ...]:
        """A list: the field repeated, or its values separated by commas; empty items are left out.

        Raises:
            InvalidField: an item is not text, longer than `limit`, or there are more than `most`.
        """
        values = self.fields.get(name, ())
        if sum(value.count(",") + 1 for value in values) > most:
            raise InvalidField(name, f"holds more than {most} items")
        items = [item.strip() for value in values for item in value.split(",")]
        return tuple(clean(name, item, limit=limit) for item in items if item)


def clean(name: str, value: str, *, limit: int, lines: bool = False) -> str:
    """The text in normal form C.

    Raises:
        InvalidField: it is longer than `limit` characters, or holds control characters, surrogates or marks that
            turn the writing direction.
    """
    allowed = "\r\n\t" if lines else ""
    if len(value) > limit:
        raise InvalidField(name, f"is longer than {limit} characters")
    for character in value:
        if character in allowed:
            continue
        if character in _DIRECTION_MARKS or unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}:
            raise InvalidField(name, f"holds the character U+{ord(character):04X}, which is not allowed")
    normal = unicodedata.normalize("NFC", value)
    if len(normal) > limit:
        raise InvalidField(name, f"is longer than {limit} characters")
    return normal


def flag(name: str, value: str) -> bool:
    """`1` or `true` is yes, `0` or `false` is no, in any letter case. Raises InvalidField for another value."""
    match value.casefold():
        case "1" | "true":
            return True
        case "0" | "false":
            return False
    raise InvalidField(name, "must be 1, 0, true or false")


async def read_form(request: web.Request, *, limit: int = FORM_LIMIT) -> Form:
    """The whole form of a request: url-encoded, multipart, or none at all. `limit` is in bytes.

    Raises:
        InvalidRequest: the body cannot be understood.
        BodyTooLarge: it is longer than `limit`.
    """
    if not request.body_exists:
        return Form()  # Whatever type the client's library gives to nothing.
    kind, options = parse_options_header(request.headers.get("Content-Type", ""))
    if options.get("charset", "utf-8").casefold() not in {"utf-8", "utf8"}:
        raise InvalidRequest("A form must be in UTF-8.")
    if kind == "application/x-www-form-urlencoded":
        return _urlencoded(await _read(request, limit))
    if kind == "multipart/form-data":
        return await _multipart(request, limit)
    raise InvalidRequest("The body must be application/x-www-form-urlencoded or multipart/form-data.")


async def read_question(request: web.Request) -> Mapping[str, Any]:
    """The JSON object that another service sent.

    Raises:
        InvalidRequest: it is none.
        BodyTooLarge: it is longer than `FORM_LIMIT`.
    """
    try:
        question = orjson.loads(await _read(request, FORM_LIMIT))
    except orjson.JSONDecodeError:
        raise InvalidRequest("The body must be JSON.") from None
    if not isinstance(question, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return question


async def body(request: web.Request, *, limit: int | None = None, joined: bool = True) -> AsyncIterator[bytes]:
    """The bytes of the body as they come, at most `limit`.

    `joined` copies all that have come into one block: less work for who parses them. Without it they are passed on as
    they are, in the least memory.

    Raises:
        InvalidRequest: the transfer is broken, compressed, or too slow: less than `PROGRESS` bytes in `PATIENCE`
            seconds of waiting for them.
        BodyTooLarge: it is longer than `limit`.
    """
    if request.headers.get("Content-Encoding", "identity").casefold() != "identity":
        raise InvalidRequest("A compressed body is not accepted.")
    if limit is not None and (request.content_length or 0) > limit:
        raise BodyTooLarge(f"The body is longer than {limit} bytes.")
    content = request.content
    joined = joined or request.content_length is None  # The sender chooses how small the pieces without a length are.
    received = marked = 0
    left = PATIENCE
    while True:
        started = time.monotonic()
        try:
            async with asyncio.timeout(left):
                block = await content.readany() if joined else (await content.readchunk())[0]
        except TimeoutError:
            raise InvalidRequest("The body came too slowly.") from None
        except (web.RequestPayloadError, HttpProcessingError):
            raise InvalidRequest("The body is broken or ended early.") from None
        if not block:
            return
        received += len(block)
        if limit is not None and received > limit:
            raise BodyTooLarge(f"The body is longer than {limit} bytes.")
        left -= time.monotonic() - started
        if received - marked >= PROGRESS:
            marked, left = received, PATIENCE
        yield block


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


async def _read(request: web.Request, limit: int) -> bytes:
    return b"".join([block async for block in body(request, limit=limit)])


def _urlencoded(raw: bytes) -> Form:
    fields: dict[str, tuple[str, ...]] = {}
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_LIMIT)
    except ValueError:  # bytes that are not a form, escapes that are not UTF-8, or too many fields
        raise InvalidRequest(f"The form must be UTF-8 and have at most {FIELDS_LIMIT} fields.") from None
    for name, value in pairs:
        fields[name] = (*fields.get(name, ()), value)
    return Form(fields)


async def _multipart(request: web.Request, limit: int) -> Form:
    fields: dict[str, tuple[str, ...]] = {}
    files: dict[str, bytes] = {}
    value = bytearray()
    segment: MultipartSegment | None = None
    async for event in multipart_events(request, limit=limit):
        if isinstance(event, MultipartSegment):
            segment, value = event, bytearray()
        elif event is not None:
            value += event
        elif segment is not None and segment.name:
            if segment.filename is not None:
                files[segment.name] = bytes(value)
            else:
                text = field_text(segment, bytes(value))
                fields[segment.name] = (*fields.get(segment.name, ()), text)
    return Form(fields, files)
