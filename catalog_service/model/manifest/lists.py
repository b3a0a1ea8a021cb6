"""Rules for the lists of winget's manifest schema, and JSON in form fields."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import GetCoreSchemaHandler, ValidationInfo, ValidatorFunctionWrapHandler
from pydantic_core import CoreSchema, core_schema

from catalog_service.model.manifest.values import Rule


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
