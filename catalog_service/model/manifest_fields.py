"""The fields of winget's manifest schema, and their rules, which are the same for forms, manifest files and documents.

Pydantic calls a rule with its context: `Source.FORM`, `Source.FILE`, or None for values that are trusted.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from enum import Enum, auto
from typing import Annotated, Any, TypeVar, get_args

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from common.errors import InvalidField
from common.http.forms import Form, clean, flag

_DECIMAL = re.compile(r"-?[0-9]{1,10}")
_DECIMAL_OR_HEX = re.compile(r"-?[0-9]{1,10}|0[xX][0-9A-Fa-f]{1,8}")


class Source(Enum):
    """The source of values that are not trusted."""

    FORM = auto()  # also JSON in a form
    FILE = auto()  # a manifest file; each of its scalars is a text


class Rule(ABC):
    """The rule of one value."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self._validate)

    def _validate(self, value: Any, info: ValidationInfo) -> Any:
        return self.check(value, info.context) if info.context else self.from_document(value)

    @abstractmethod
    def check(self, value: object, source: Source) -> Any:
        """Return the value in its usual spelling. Raises ValueError."""

    def from_document(self, value: Any) -> Any:
        return value

    def from_form(self, values: Sequence[str]) -> Any:
        """Return a form field's value, unchecked: the last one that is not empty. Raises ValueError."""
        return next(value for value in reversed(values) if value)


@dataclass(frozen=True)
class Text(Rule):
    """A text of `least` to `limit` characters; `pattern` matches all of it, and `like` describes the pattern."""

    limit: int
    least: int = 1
    pattern: str = ""
    like: str = ""
    lines: bool = False

    def check(self, value: object, source: Source) -> str:
        if not isinstance(value, str):
            raise ValueError("must be a text")  # noqa: TRY004  Pydantic handles this error.
        if source is Source.FORM:
            try:
                value = clean("", value, limit=self.limit, lines=self.lines)
            except InvalidField as problem:
                raise ValueError(problem.message) from None
        if len(value) > self.limit:
            raise ValueError(f"is longer than {self.limit} characters")
        if len(value) < self.least:
            raise ValueError(f"is shorter than {self.least} characters")
        if self.pattern and not re.fullmatch(self.pattern, value):
            raise ValueError(f"must be {self.like}")
        return value


class OptionalText(Text):
    """A text, or an empty one."""

    def check(self, value: object, source: Source) -> str:
        return "" if value == "" else super().check(value, source)


class Tag(Text):
    """A language tag of BCP 47. Forms may send `ko_KR` or `KO-kr` for `ko-KR`."""

    def check(self, value: object, source: Source) -> str:
        if source is Source.FILE or not isinstance(value, str):
            return super().check(value, source)
        first, *others = super().check(value.replace("_", "-"), source).split("-")
        cased = {2: str.upper, 4: str.title} if len(first) > 1 else {}
        return "-".join([first.lower(), *(cased.get(len(part), str.lower)(part) for part in others)])


class Day(Rule):
    """A date as a text: `2026-11-22`."""

    def check(self, value: object, source: Source) -> str:
        try:
            if isinstance(value, str) and date.fromisoformat(value).isoformat() == value:
                return value
        except ValueError:
            pass
        raise ValueError("must be a date such as 2026-11-22")


class Flag(Rule):
    def check(self, value: object, source: Source) -> bool:
        if source is Source.FILE and isinstance(value, str):
            value = {"true": True, "false": False}.get(value.lower())
        if not isinstance(value, bool):
            raise ValueError("must be true or false")  # noqa: TRY004  Pydantic handles this error.
        return value

    def from_form(self, values: Sequence[str]) -> bool:
        try:
            return flag("", super().from_form(values))
        except InvalidField as problem:
            raise ValueError(problem.message) from None


@dataclass(frozen=True)
class ReturnCode(Rule):
    """An installer's exit code. 0 is not allowed, because it means success for every installer."""

    low: int = -(2**31)
    high: int = 2**32 - 1

    def check(self, value: object, source: Source) -> int:
        if source is Source.FILE and isinstance(value, str) and _DECIMAL_OR_HEX.fullmatch(value):
            value = int(value, 16 if value[:2] in {"0x", "0X"} else 10)
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= self.high or not value:
            raise ValueError(f"must be a whole number from {self.low} to {self.high}, and not 0")
        return value

    def from_form(self, values: Sequence[str]) -> int | None:
        text = super().from_form(values)
        return int(text) if _DECIMAL.fullmatch(text) else None


def _in_file(name: str) -> str:
    """Spell a value as manifest files do: installer types are in lower case there."""
    return name.lower() if name.isupper() else name


@dataclass(frozen=True)
class Choice(Rule):
    """One of these values; forms may send it in any letter case."""

    values: Iterable[str]

    def check(self, value: object, source: Source) -> str:
        spell = str.casefold if source is Source.FORM else _in_file
        members = {spell(member): member for member in self.values}
        name = value.casefold() if source is Source.FORM and isinstance(value, str) else value
        if isinstance(name, str) and name in members:
            return members[name]
        raise ValueError(f"must be one of {', '.join(members if source is Source.FILE else self.values)}")

    def from_document(self, value: Any) -> str | None:
        for member in (None, *self.values):
            if member == value:
                return member
        raise ValueError("is not one of the values")


SHA256 = Text(64, pattern="[0-9A-Fa-f]{64}", like="a SHA-256 digest in hexadecimal")
Url = Annotated[
    str, Text(2048, pattern=r"(?i:https?)://[^\s/].*", like="an address that begins with https:// or http://")
]
LanguageTag = Annotated[
    str,
    Tag(
        20,
        pattern=r"([a-zA-Z]{2,3}|[iI]-[a-zA-Z]+|[xX]-[a-zA-Z]{1,8})(-[a-zA-Z]{1,8})*",
        like="a language tag such as en-US",
    ),
]


@dataclass(frozen=True)
class Records:
    """A list of at most `most` different objects; a form sends one JSON text."""

    most: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_wrap_validator_function(self._validate, handler(source))

    def from_form(self, values: Sequence[str]) -> Any:
        return from_json(values, list)

    def _validate(self, value: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        if info.context is None:
            return validate(value)
        if not isinstance(value, list):
            raise ValueError("must be a list")  # noqa: TRY004  Pydantic handles this error.
        self._check_count(len(value))
        items = validate(value)
        self._check_unique(items)
        return items

    def _check_count(self, number: int) -> None:
        if number > self.most:
            raise ValueError(f"holds more than {self.most} items")

    def _check_unique(self, items: Sequence[Any]) -> None:
        if len(set(items)) < len(items):
            raise ValueError("holds an item twice")


@dataclass(frozen=True)
class Listed(Records):
    """A list of at most `most` different values. A form repeats the field, or separates the values by commas."""

    of: Rule

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        items = core_schema.tuple_variable_schema(self.of.__get_pydantic_core_schema__(source, handler))
        return core_schema.with_info_wrap_validator_function(self._validate, items)

    def from_form(self, values: Sequence[str]) -> Sequence[Any]:
        self._check_count(sum(value.count(",") + 1 for value in values))
        items = [item.strip() for value in values for item in value.split(",")]
        return [self.of.from_form([item]) for item in items if item]


class Aliases(Listed):
    """A value for each item of another field, or none at all; an item without one has an empty text."""

    def from_form(self, values: Sequence[str]) -> Sequence[str]:
        return list(values)

    def _check_unique(self, items: Sequence[str]) -> None:
        super()._check_unique([item.casefold() for item in items if item])


def from_json(values: Sequence[str], kind: type[dict[str, Any]] | type[list[Any]]) -> Any:
    """Return the last value that is not empty, read as JSON. Raises ValueError if it is of another kind."""
    try:
        parsed = orjson.loads(next(value for value in reversed(values) if value))
    except orjson.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, kind):
        raise ValueError(f"must be {'an object' if kind is dict else 'a list'} in JSON")  # noqa: TRY004
    return parsed


_CAPITALS = {"os": "OS", "dscv3": "DSCv3"}
_REASONS = {"missing": "is required", "extra_forbidden": "is not known", "model_type": "must be an object"}


def pascal(name: str) -> str:
    """Return the name that winget has for one of ours: `MinimumOSVersion` for `minimum_os_version`."""
    return "".join(_CAPITALS.get(word, word.capitalize()) for word in name.split("_"))


class Fields(BaseModel):
    """A part of a manifest. Manifest files use winget's names, all else the names of the fields.

    An empty value in a form is the same as no value.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=pascal, validate_by_name=True, validate_by_alias=False
    )

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, value: Any, info: ValidationInfo) -> Any:
        if info.context is not Source.FORM or not isinstance(value, dict):
            return value
        if not value.keys() <= cls.model_fields.keys():
            raise ValueError(f"may have the members {', '.join(cls.model_fields)} only")
        members = {name: member for name, member in value.items() if is_set(member)}
        if not members:
            raise ValueError("says nothing")
        return members


Part = TypeVar("Part", bound=Fields)


def parse_manifest(kind: type[Part], form: Form) -> Part:
    """Return the manifest that a form describes. Raises InvalidField."""
    values = {name: value for name, value in _form_values(kind, form).items() if is_set(value)}
    try:
        return kind.model_validate(values, context=Source.FORM) if values else kind()
    except ValidationError as error:
        raise InvalidField(*next(validation_errors(error))) from None


def parse_changes(kind: type[Part], form: Form) -> dict[str, Any]:
    """Return the fields that a form sends, as documents have them; None for empty ones. Raises InvalidField."""
    document = to_document(parse_manifest(kind, form))
    return {name: document.get(name) for name in _form_values(kind, form)}


def _form_values(kind: type[Fields], form: Form) -> dict[str, Any]:
    """Return the unchecked values of the fields that a form sends, None for empty ones. Raises InvalidField."""
    values: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if sent := form.fields.get(name):
            rule = next((rule for rule in field.metadata if isinstance(rule, Rule | Records)), None)
            try:
                if not any(sent):
                    values[name] = None
                else:
                    values[name] = rule.from_form(sent) if rule else from_json(sent, dict)
            except ValueError as problem:
                raise InvalidField(name, str(problem)) from None
    return values


def validation_errors(error: ValidationError, file: type[Fields] | None = None) -> Iterator[tuple[str, str]]:
    """Yield the place and the reason of each error, such as `locales[0].license`, `is shorter than 3 characters`.

    For a manifest file of this type, the reason suggests the name that an unknown field may have.
    """
    for details in error.errors(include_url=False, include_input=False):
        location = details["loc"]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
        reason = _REASONS.get(details["type"], details["msg"].removeprefix("Value error, "))
        is_unknown = details["type"] == "extra_forbidden"
        name = _nearest_name(file, location) if file and is_unknown else None
        yield place, f"{reason}; did you mean {name}?" if name else reason


def _nearest_name(part: type[Fields] | None, location: Sequence[int | str]) -> str | None:
    """The field with the most similar name in the part of the file that has the unknown field."""
    *parents, name = location
    for parent in parents:
        if part and isinstance(parent, str):
            annotations = (field.annotation for field in part.model_fields.values() if field.alias == parent)
            part = next(map(_nested_part, annotations), None)
    names = {pascal(field).casefold(): pascal(field) for field in part.model_fields} if part else {}
    return next((names[match] for match in get_close_matches(str(name).casefold(), names, n=1)), None)


def _nested_part(annotation: Any) -> type[Fields] | None:
    """The type of an object, or of the objects in a list."""
    if isinstance(annotation, type) and issubclass(annotation, Fields):
        return annotation
    return next(filter(None, map(_nested_part, get_args(annotation))), None)


def is_set(value: object) -> bool:
    """Whether a value is neither null nor an empty text or list."""
    return value is not None and value not in ("", [], ())


def to_document(manifest: Fields) -> dict[str, Any]:
    """Return a manifest as documents and JSON have it, without what is empty; `model_validate` reads it."""
    return manifest.model_dump(mode="json", exclude_defaults=True)


def all_fields(manifest: Fields) -> Mapping[str, Any]:
    """Every field of a manifest; an empty one is "", [] or false."""
    values = {**type(manifest)().model_dump(mode="json"), **to_document(manifest)}
    return {name: "" if value is None else value for name, value in values.items()}
