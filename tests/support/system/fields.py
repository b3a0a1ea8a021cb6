"""The fields of each operation, from the OpenAPI document."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from openapi_schema_validator import OAS31Validator, oas31_format_checker

from gateway.forwarding.proxy import CHECKED
from gateway.operations import Operation
from tests.support.samples.openapi import DOCUMENT, resolve_ref


@dataclass(frozen=True)
class Field:
    """A field of a form or a query. `schema` has no reference."""

    name: str
    place: str  # "data" or "params", as aiohttp's client calls them
    schema: Mapping[str, Any]

    @property
    def is_file(self) -> bool:
        return self.schema.get("format") == "binary"

    @property
    def is_secret(self) -> bool:
        return self.schema.get("format") == "password"

    def accepts(self, text: str) -> bool:
        """Whether the document allows this text. For a list, the text is one value without commas."""
        match self.schema:
            case {"type": "array", "items": items}:
                return Field(self.name, self.place, resolve_ref(items)).accepts(text)
            case {"type": "boolean"}:
                return text.casefold() in {"1", "0", "true", "false"}
            case {"type": "integer"}:
                return re.fullmatch(r"-?[0-9]+", text) is not None and self._allows(int(text))
            case {"enum": values}:
                return _normalize(text) in map(_normalize, values)
            case _:
                return self._allows(text)

    def _allows(self, value: object) -> bool:
        validator: Any = OAS31Validator(self.schema, format_checker=oas31_format_checker)
        return bool(validator.is_valid(value))


def fields_of(row: Operation) -> list[Field]:
    """All fields of an operation except files."""
    return [field for field in all_fields_of(row) if not field.is_file]


def select_fields(row: Operation, form: Mapping[str, str]) -> dict[str, str]:
    """The fields that an operation has, of a form for all operations; all of them if it ignores the others."""
    names = {field.name for field in all_fields_of(row) if field.place == "data"}
    return {name: value for name, value in form.items() if name in names or row.access not in CHECKED}


def all_fields_of(row: Operation) -> list[Field]:
    """All fields of an operation that a caller chooses, each once."""
    # The document does not describe the sign-in form of browsers. It equals the form of `login`.
    path = "login" if row.name == "sign_in" else row.path
    operation = DOCUMENT["paths"].get(f"/{path}", {}).get(row.method.lower(), {})
    schemas = {
        (name, "data"): schema
        for kind, content in operation.get("requestBody", {"content": {}})["content"].items()
        if kind != "application/json"
        for name, schema in _properties(content["schema"])
    }
    parameters = [resolve_ref(parameter) for parameter in operation.get("parameters", [])]
    schemas |= {
        (parameter["name"], "params"): parameter["schema"] for parameter in parameters if parameter["in"] == "query"
    }
    return [Field(name, place, resolve_ref(schema)) for (name, place), schema in schemas.items()]


def _properties(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    whole = resolve_ref(dict(schema))
    if whole.get("x-unchanged"):
        return  # A form may only repeat the stored values.
    yield from whole.get("properties", {}).items()
    for part in whole.get("allOf", []):
        yield from _properties(part)


def _normalize(text: str) -> str:
    return text.casefold().replace("_", "-")
