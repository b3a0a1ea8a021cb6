"""Rules for the values of winget's manifest schema. Forms, manifest files and documents are read by the same rules.

Pydantic calls a rule with its context: `Source.FORM`, `Source.FILE`, or None for values that are trusted.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum, auto
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from common.errors import InvalidField
from common.http.forms import clean, flag

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
