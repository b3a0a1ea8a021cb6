"""What the fields of a manifest may hold, as winget's schemas say. YAML's scalars come as texts."""

import re
from collections.abc import Callable
from datetime import date
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

_WHOLE = re.compile(r"-?[0-9]{1,10}|0[xX][0-9A-Fa-f]{1,8}")
_ID_PART = r'[^.\s\\/:*?"<>|\x01-\x1f]{1,32}'
_CAPITALS = {"os": "OS", "dscv3": "DSCv3"}
_NUMBER = r"(0|[1-9][0-9]{0,4})"

Item = TypeVar("Item")


def pascal(name: str) -> str:
    """The name that a manifest has for one of ours: `minimum_os_version` is `MinimumOSVersion`."""
    return "".join(_CAPITALS.get(word, word.capitalize()) for word in name.split("_"))


class Fields(BaseModel):
    """A part of a manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=pascal, populate_by_name=True)


def text(most: int, least: int = 1) -> StringConstraints:
    return StringConstraints(min_length=least, max_length=most)


def like(pattern: str, wanted: str, most: int = 2048) -> AfterValidator:
    """Texts of which a pattern matches all; `wanted` says so in words."""
    whole = re.compile(pattern)

    def check(value: str) -> str:
        if len(value) > most or not whole.fullmatch(value):
            raise ValueError(f"must be {wanted}, of at most {most} characters")
        return value

    return AfterValidator(check)


def many(most: int) -> AfterValidator:
    """At most so many items."""

    def check(items: list[Item]) -> list[Item]:
        if len(items) > most:
            raise ValueError(f"holds more than {most} items")
        return items

    return AfterValidator(check)


def some(most: int) -> AfterValidator:
    """At most so many items, each once."""

    def check(items: list[Item]) -> list[Item]:
        if len(items) > most:
            raise ValueError(f"holds more than {most} items")
        if len({str(item) for item in items}) < len(items):
            raise ValueError("holds an item twice")
        return items

    return AfterValidator(check)


def _before(check: Callable[[str], object]) -> BeforeValidator:
    return BeforeValidator(lambda value: check(value) if isinstance(value, str) else value)


def _flag(value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise ValueError("must be true or false")
    return value.lower() == "true"


def _whole(value: str) -> int:
    if not _WHOLE.fullmatch(value):
        raise ValueError("must be a whole number")
    return int(value, 16) if value[:2] in {"0x", "0X"} else int(value)


def _not_zero(value: int) -> int:
    if not value:
        raise ValueError("must not be 0")
    return value


def _day(value: str) -> str:
    try:
        if date.fromisoformat(value).isoformat() == value:
            return value
    except ValueError:
        pass
    raise ValueError("must be a date such as 2026-11-22")


def _version(value: str) -> str:
    if any(int(number) > 65535 for number in value.split(".")):
        raise ValueError("must have numbers up to 65535")
    return value


Flag = Annotated[bool, _before(_flag)]
Day = Annotated[str, AfterValidator(_day)]
ReturnCode = Annotated[int, Field(ge=-(2**31), le=2**32 - 1), _before(_whole), AfterValidator(_not_zero)]
Url = Annotated[str, like("(?i:https?)://.+", "an address that begins with https:// or http://")]
Sha256 = Annotated[str, like("[A-Fa-f0-9]{64}", "a SHA-256 digest in hexadecimal")]
PackageId = Annotated[
    str,
    like(
        rf"{_ID_PART}(\.{_ID_PART}){{1,7}}", "two to eight parts of at most 32 characters with dots between them", 128
    ),
]
PackageVersion = Annotated[str, like(r'[^\\/:*?"<>|\x01-\x1f]+', 'a version without \\ / : * ? " < > |', 128)]
LanguageTag = Annotated[
    str, like(r"([a-zA-Z]{2,3}|[iI]-[a-zA-Z]+|[xX]-[a-zA-Z]{1,8})(-[a-zA-Z]{1,8})*", "a language tag such as en-US", 20)
]
ManifestVersion = Annotated[str, like(rf"{_NUMBER}(\.{_NUMBER}){{2}}", "a version such as 1.10.0", 20)]
OsVersion = Annotated[
    str,
    like(rf"{_NUMBER}(\.{_NUMBER}){{0,3}}", "one to four numbers with dots between them", 23),
    AfterValidator(_version),
]
FamilyName = Annotated[str, like("[A-Za-z0-9][-.A-Za-z0-9]+_[A-Za-z0-9]{13}", "a package family name", 255)]
WindowsFeature = Annotated[str, like("[A-Za-z0-9_-]+", "a name of letters, digits, - and _", 128)]
Word = Annotated[str, text(40)]
Code = Annotated[str, text(255)]
Market = Annotated[str, like("[A-Z]{2}", "two capital letters, such as US")]
FileExtension = Annotated[str, like(r'[^\\/:*?"<>|\x01-\x1f]+', "an ending such as html", 64)]

Architecture = Literal["x86", "x64", "arm", "arm64", "neutral"]
OsArchitecture = Literal["x86", "x64", "arm", "arm64"]
NestedType = Literal["msix", "msi", "appx", "exe", "inno", "nullsoft", "wix", "burn", "portable", "font"]
InstallerType = NestedType | Literal["zip", "pwa"]
