"""What the fields of a manifest may hold, as winget's schemas say. Text is as `common.http.forms.clean` lets it be."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import date
from enum import StrEnum
from typing import Annotated, Any

import orjson

from catalog_service.model.manifest.fields import Rule, kept, last, rules_of, said
from common.errors import InvalidField
from common.http.forms import clean, flag

_WHOLE = re.compile(r"-?[0-9]{1,10}")


class _One(ABC):
    """A rule for fields whose last value counts in a form, one that says something before an empty one."""

    @abstractmethod
    def read(self, name: str, sent: object) -> Any: ...

    def of_form(self, name: str, sent: Sequence[str]) -> Any:
        return self.read(name, last(sent))

    def kept(self, value: Any) -> Any:
        return value


@dataclass(frozen=True)
class Text(_One):
    """`least` to `limit` characters; `pattern` is of all of it, and `like` says in words what it wants."""

    limit: int
    least: int = 1
    pattern: str = ""
    like: str = ""
    lines: bool = False

    def read(self, name: str, sent: object) -> str:
        if not isinstance(sent, str):
            raise InvalidField(name, "must be a text")
        text = clean(name, sent, limit=self.limit, lines=self.lines)
        if len(text) < self.least:
            raise InvalidField(name, f"is shorter than {self.least} characters")
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise InvalidField(name, f"must be {self.like}")
        return text


class Tag(Text):
    """A language tag of BCP 47: `ko_KR` and `KO-kr` are `ko-KR`."""

    def read(self, name: str, sent: object) -> str:
        first, *others = super().read(name, sent.replace("_", "-") if isinstance(sent, str) else sent).split("-")
        cased = {2: str.upper, 4: str.title} if len(first) > 1 else {}
        return "-".join([first.lower(), *(cased.get(len(part), str.lower)(part) for part in others)])


class Day(_One):
    """A date, kept as it is written: `2026-11-22`."""

    def read(self, name: str, sent: object) -> str:
        try:
            if isinstance(sent, str) and date.fromisoformat(sent).isoformat() == sent:
                return sent
        except ValueError:
            pass
        raise InvalidField(name, "must be a date such as 2026-11-22")


class Flag(_One):
    def read(self, name: str, sent: object) -> bool:
        if not isinstance(sent, bool):
            raise InvalidField(name, "must be true or false")
        return sent

    def of_form(self, name: str, sent: Sequence[str]) -> bool:
        return flag(name, last(sent))


@dataclass(frozen=True)
class ReturnCode(_One):
    """What an installer may end with, 0 aside: it is success for every one. A form has it in digits."""

    low: int = -(2**31)
    high: int = 2**32 - 1

    def read(self, name: str, sent: object) -> int:
        if not isinstance(sent, int) or isinstance(sent, bool) or not self.low <= sent <= self.high or not sent:
            raise InvalidField(name, f"must be a whole number from {self.low} to {self.high}, and not 0")
        return sent

    def of_form(self, name: str, sent: Sequence[str]) -> int:
        return self.read(name, int(last(sent)) if _WHOLE.fullmatch(last(sent)) else None)


@dataclass(frozen=True)
class Choice(_One):
    """One of an enumeration's values, in any letter case."""

    kind: type[StrEnum]

    def read(self, name: str, sent: object) -> StrEnum:
        for member in self.kind:
            if isinstance(sent, str) and sent.casefold() == member.casefold():
                return member
        raise InvalidField(name, f"must be one of {', '.join(self.kind)}")

    def kept(self, value: Any) -> StrEnum:
        return self.kind(value)


@dataclass(frozen=True)
class Listed:
    """At most `most` different values of a rule; in a form the field repeated, or its values separated by commas."""

    of: Rule
    most: int

    def read(self, name: str, sent: object) -> tuple[Any, ...]:
        if not isinstance(sent, list):
            raise InvalidField(name, "must be a list")
        self._count(name, len(sent))
        return self._different(name, [self.of.read(f"{name}[{at}]", item) for at, item in enumerate(sent)])

    def of_form(self, name: str, sent: Sequence[str]) -> tuple[Any, ...]:
        self._count(name, sum(value.count(",") + 1 for value in sent))
        items = [item.strip() for value in sent for item in value.split(",")]
        return self._different(name, [self.of.of_form(name, [item]) for item in items if item])

    def kept(self, value: Any) -> tuple[Any, ...]:
        return tuple(self.of.kept(item) for item in value)

    def _count(self, name: str, number: int) -> None:
        if number > self.most:
            raise InvalidField(name, f"holds more than {self.most} items")

    def _different(self, name: str, values: list[Any]) -> tuple[Any, ...]:
        if len(set(values)) < len(values):
            raise InvalidField(name, "holds an item twice")
        return tuple(values)


@dataclass(frozen=True)
class Record(_One):
    """An object in JSON whose members are the fields of `kind`; those without a default must be there."""

    kind: Any

    def of_form(self, name: str, sent: Sequence[str]) -> Any:
        try:
            return self.read(name, orjson.loads(last(sent)))
        except orjson.JSONDecodeError:
            raise InvalidField(name, "must be an object in JSON") from None

    def read(self, name: str, sent: object) -> Any:
        if not isinstance(sent, dict):
            raise InvalidField(name, "must be an object")
        rules = rules_of(self.kind)
        for member in sent:
            if member not in rules:
                raise InvalidField(name, f"may have the members {', '.join(rules)} only")
        found = {member: rules[member].read(f"{name}.{member}", value) for member, value in sent.items() if said(value)}
        if not found:
            raise InvalidField(name, "says nothing")
        for member in fields(self.kind):
            if member.default is MISSING and member.name not in found:
                raise InvalidField(f"{name}.{member.name}", "is required")
        return self.kind(**found)

    def kept(self, value: Mapping[str, Any]) -> Any:
        return kept(self.kind, value)


@dataclass(frozen=True)
class Beside(Listed):
    """A value for each of another field's, or none at all; empty ones are for those that have none."""

    def of_form(self, name: str, sent: Sequence[str]) -> tuple[str, ...]:
        self._count(name, len(sent))
        found = tuple(self.of.read(name, value) if value else "" for value in sent)
        self._different(name, [value.casefold() for value in found if value])
        return found


class Records(Listed):
    """A list of records; in a form one JSON text."""

    def __init__(self, kind: type[Any], most: int) -> None:
        super().__init__(Record(kind), most)

    def of_form(self, name: str, sent: Sequence[str]) -> tuple[Any, ...]:
        try:
            return self.read(name, orjson.loads(last(sent)))
        except orjson.JSONDecodeError:
            raise InvalidField(name, "must be a list in JSON") from None


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
