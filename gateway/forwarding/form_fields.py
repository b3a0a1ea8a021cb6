"""Refuses form fields that an operation does not have: a service would ignore them, and their values would be lost.

The OpenAPI document says which fields an operation has. Only administrators' operations are checked: the programs of
package clients send more than they need.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from aiohttp import hdrs, web

from common.errors import InvalidField, InvalidRequest
from common.http.forms import field_names
from gateway.operations import Access, Operation, is_value

CHECKED = frozenset([Access.ADMINISTRATOR, Access.SESSION])
Node = Mapping[str, Any]  # of the document
WINGET_NAME = "x-winget-name"  # the document's name for a field's counterpart in winget's manifests
SHOWN_LENGTH = 64  # characters of an unknown name


@dataclass(frozen=True)
class _Fields:
    """The names of an operation's fields. `nearest` has them by their squeezed names, and by those of winget."""

    names: frozenset[str]
    nearest: Mapping[str, str]


def is_checked(operation: Operation) -> bool:
    """Whether unknown fields of an operation are refused. A GET has no form, so it loses no field."""
    return operation.access in CHECKED and operation.method != hdrs.METH_GET


class FormFields:
    """The form fields of all operations."""

    def __init__(self, document: Node) -> None:
        self._document = document
        self._fields: dict[Operation, _Fields] = {}

    def check_body(self, operation: Operation, content_type: str, body: bytes) -> None:
        """Check the names of a whole form. Raises InvalidField."""
        if not is_checked(operation):
            return
        names: Iterable[str] = ()
        with suppress(InvalidRequest):  # The service decides on a body that is no form.
            names = field_names(content_type, body)
        self.check(operation, names)

    def check(self, operation: Operation, names: Iterable[str]) -> None:
        """Raise InvalidField, with the nearest name, for a name that a checked operation does not have."""
        if not is_checked(operation):
            return
        fields = self._fields_of(operation)
        for name in names:
            if name not in fields.names:
                raise _unknown(name, fields.nearest)

    def _fields_of(self, operation: Operation) -> _Fields:
        fields = self._fields.get(operation)
        if fields is None:
            described: Node = self._document["paths"][f"/{operation.path}"][operation.method.lower()]
            contents = described.get("requestBody", {"content": {}})["content"].values()
            schemas = dict(each for content in contents for each in self._properties(content["schema"]))
            winget = {schema[WINGET_NAME]: name for name, schema in schemas.items() if WINGET_NAME in schema}
            nearest = {_squeezed(alias): name for alias, name in {**winget, **{name: name for name in schemas}}.items()}
            in_address = (part.strip("{}") for part in operation.parts if is_value(part))  # A field may repeat them.
            fields = self._fields[operation] = _Fields(frozenset(schemas).union(in_address), nearest)
        return fields

    def _properties(self, schema: Node) -> Iterator[tuple[str, Node]]:
        while "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            schema = self._document["components"]["schemas"][name]
        yield from schema.get("properties", {}).items()
        for part in schema.get("allOf", ()):
            yield from self._properties(part)


FORM_FIELDS = web.AppKey("form_fields", FormFields)


def _unknown(name: str, fields: Mapping[str, str]) -> InvalidField:
    shown = name if len(name) <= SHOWN_LENGTH else f"{name[:SHOWN_LENGTH]}…"
    message = "is no field of this operation"
    if matches := get_close_matches(_squeezed(name[:SHOWN_LENGTH]), fields, n=1):
        nearest = fields[matches[0]]
        message = f"{message}; did you mean {nearest}?"
        return InvalidField(shown, message, reason="unknown_field_but_similar", nearest=nearest)
    return InvalidField(shown, f"{message}; see its documentation", reason="unknown_field")


def _squeezed(name: str) -> str:
    """The same text for `package_dependencies` and `PackageDependencies`."""
    return name.casefold().replace("_", "").replace("-", "")
