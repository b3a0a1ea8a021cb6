"""Parses forms strictly: invalid ones are answered 400, and no unchecked value reaches a database."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar
from urllib.parse import parse_qsl, unquote_plus

from aiohttp import web
from multipart import MultipartSegment, parse_options_header

from common.errors import InvalidField, InvalidRequest
from common.http.bodies import FIELDS_LIMIT, FORM_LIMIT, field_text, multipart_events, read_body, segment_names
from common.telemetry import is_hidden

MAX_INTEGER = 2**31 - 1
NAME_LIMIT = 128  # characters of a field's name, escapes included
URLENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"

Choice = TypeVar("Choice", bound=StrEnum)
_DIGITS = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True)
class Form:
    """The fields of a request, each with its values in order, and its small files by name."""

    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    def get(self, name: str, *other_spellings: str) -> str | None:
        """The last value of a field, unchecked, the first non-empty one of all spellings; None if it was not sent."""
        sent = [values[-1] for spelling in (name, *other_spellings) if (values := self.fields.get(spelling))]
        return next(filter(None, sent), "" if sent else None)

    def text(self, name: str, *, limit: int, required: bool = True, lines: bool = False) -> str:
        """The text of a field, of 1 to `limit` characters, or "" unless it is `required`; `lines` allows line breaks.

        Raises InvalidField: it is missing, too long, or holds forbidden characters, see `clean`.
        """
        value = clean(name, self.get(name) or "", limit=limit, lines=lines)
        if required and not value:
            raise InvalidField(name, "is required", reason="required")
        return value

    def choice(self, name: str, kind: type[Choice], default: Choice | None = None) -> Choice:
        """One of an enumeration's values; letter case does not matter, nor `-` or `_`. Raises InvalidField."""
        value, values = self.get(name), ", ".join(kind)
        if not value:
            if default is None:
                raise InvalidField(name, f"is required; one of {values}", reason="choice_required", values=values)
            return default
        for member in kind:
            if value.casefold().replace("_", "-") == member.casefold().replace("_", "-"):
                return member
        raise InvalidField(name, f"must be one of {values}", reason="not_a_choice", values=values)

    def integer(self, name: str, *other_spellings: str, default: int, least: int = 0, most: int = MAX_INTEGER) -> int:
        """A whole number from `least` to `most` in ASCII digits. Raises InvalidField."""
        value = self.get(name, *other_spellings)
        if not value:
            return default
        number = int(value) if _DIGITS.fullmatch(value) else -1
        if not least <= number <= most:
            message = f"must be a whole number from {least} to {most}"
            raise InvalidField(name, message, reason="not_in_range", least=least, most=most)
        return number

    def flag(self, name: str) -> bool:
        """A required yes or no: `1`, `0`, `true` or `false`. Raises InvalidField."""
        value = self.get(name)
        if value is None:
            raise InvalidField(name, "is required", reason="required")
        return flag(name, value)

    def texts(self, name: str, *, limit: int, most: int = FIELDS_LIMIT) -> tuple[str, ...]:
        """A list: a repeated field, or values separated by commas, without empty items.

        Raises InvalidField: an item has forbidden characters or is longer than `limit`, or there are more than `most`.
        """
        values = self.fields.get(name, ())
        if sum(value.count(",") + 1 for value in values) > most:
            raise InvalidField(name, f"holds more than {most} items", reason="too_many_items", most=most)
        items = [item.strip() for value in values for item in value.split(",")]
        return tuple(clean(name, item, limit=limit) for item in items if item)


def clean(name: str, value: str, *, limit: int, lines: bool = False) -> str:
    """The text in normal form C, of at most `limit` characters.

    Raises InvalidField: it is too long, or holds control characters, surrogates or marks of the writing direction.
    """
    allowed = "\r\n\t" if lines else ""
    if len(value) > limit:
        raise InvalidField(name, f"is longer than {limit} characters", reason="too_long", limit=limit)
    for character in value:
        if character not in allowed and is_hidden(character, formats=False):
            code = f"{ord(character):04X}"
            message = f"holds the character U+{code}, which is not allowed"
            raise InvalidField(name, message, reason="bad_character", character=code)
    normal = unicodedata.normalize("NFC", value)
    if len(normal) > limit:
        raise InvalidField(name, f"is longer than {limit} characters", reason="too_long", limit=limit)
    return normal


def flag(name: str, value: str) -> bool:
    """True for `1` or `true`, False for `0` or `false`, in any letter case. Raises InvalidField."""
    match value.casefold():
        case "1" | "true":
            return True
        case "0" | "false":
            return False
    raise InvalidField(name, "must be 1, 0, true or false", reason="not_a_flag")


def query_form(request: web.Request) -> Form:
    """The query parameters as a form."""
    return Form({name: tuple(request.query.getall(name)) for name in request.query})


async def read_form(request: web.Request, *, limit: int = FORM_LIMIT) -> Form:
    """The form of a request: url-encoded, multipart, or empty. Raises InvalidRequest or BodyTooLarge."""
    if not request.body_exists:
        return Form()  # Client libraries send any content type without a body.
    if _form_kind(request.headers.get("Content-Type", "")) == URLENCODED:
        return urlencoded_form(await read_body(request, limit))
    return await _multipart(request, limit)


def field_names(content_type: str, body: bytes) -> Iterable[str]:
    """The names of all fields and files of a form, without its values. Raises InvalidRequest.

    Escapes take longest to decode: a megabyte of them a quarter of a second. Values are therefore not decoded, and a
    name that is longer than that of any field stays as it was sent.
    """
    if _form_kind(content_type) != URLENCODED:
        return segment_names(content_type, body)
    try:
        parts = body.decode().split("&")
        if len(parts) > FIELDS_LIMIT:
            raise _invalid_form()
        names = [part.partition("=")[0] for part in parts if part]
        return [unquote_plus(name, errors="strict") if len(name) <= NAME_LIMIT else name for name in names]
    except UnicodeDecodeError:
        raise _invalid_form() from None


def _form_kind(content_type: str) -> str:
    """`URLENCODED` or `MULTIPART`. Raises InvalidRequest for other types."""
    if content_type == URLENCODED:  # The usual type needs no parser.
        return URLENCODED
    kind, options = parse_options_header(content_type)
    if options.get("charset", "utf-8").casefold() not in {"utf-8", "utf8"}:
        raise InvalidRequest("A form must be in UTF-8.")
    if kind == URLENCODED:
        return URLENCODED
    if kind == MULTIPART:
        return MULTIPART
    raise InvalidRequest(f"The body must be {URLENCODED} or {MULTIPART}.")


def urlencoded_form(raw: bytes) -> Form:
    """The form of a url-encoded body. Raises InvalidRequest."""
    fields: dict[str, tuple[str, ...]] = {}
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_LIMIT)
    except ValueError:  # bytes or escapes that are not UTF-8, or too many fields
        raise _invalid_form() from None
    for name, value in pairs:
        fields[name] = (*fields.get(name, ()), value)
    return Form(fields)


def _invalid_form() -> InvalidRequest:
    return InvalidRequest(f"The form must be UTF-8 and have at most {FIELDS_LIMIT} fields.")


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
