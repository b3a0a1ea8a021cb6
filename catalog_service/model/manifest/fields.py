"""Manifests as dataclasses whose fields name their rules as annotations; read from forms, kept as documents.

Empty is absent: no rule is asked about an empty text, an empty list or null.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Protocol, get_type_hints

from common.http.forms import Form


class Rule(Protocol):
    """What a field may hold; `name` is how its refusal begins."""

    def read(self, name: str, sent: object) -> Any:
        """A value that came in JSON. Raises InvalidField."""

    def of_form(self, name: str, sent: Sequence[str]) -> Any:
        """A value that came in a form, where a field may be repeated. Raises InvalidField."""

    def kept(self, value: Any) -> Any:
        """A value that `plain` made of one of these."""


@lru_cache
def rules_of(kind: Any) -> Mapping[str, Rule]:
    """The rules of a manifest's fields, by their names."""
    hints = get_type_hints(kind, include_extras=True)
    return {member.name: hints[member.name].__metadata__[0] for member in fields(kind)}


def of_form(kind: Any, form: Form) -> dict[str, Any]:
    """The fields that a form has of a manifest, None for those that it has empty. Raises InvalidField."""
    found = {}
    for name, rule in rules_of(kind).items():
        if sent := form.fields.get(name):
            found[name] = rule.of_form(name, sent) if any(sent) else None
    return found


def manifest_of(kind: Any, form: Form) -> Any:
    """The manifest that a form describes. Raises InvalidField."""
    return kind(**{name: value for name, value in of_form(kind, form).items() if value is not None})


def last(sent: Sequence[str]) -> str:
    return next(value for value in reversed(sent) if value)


def said(value: object) -> bool:
    """Whether a value that was sent says anything."""
    return value is not None and value not in ("", [], ())


def plain(value: Any) -> Any:
    """A manifest, or a value in it, as JSON and documents have it: without what is empty."""
    if is_dataclass(value):
        return {name: plain(member) for name, member in vars(value).items() if said(member) and member is not False}
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value.value if isinstance(value, StrEnum) else value


def kept(kind: Any, document: Mapping[str, Any]) -> Any:
    """The manifest of which `plain` made a document."""
    rules = rules_of(kind)
    return kind(**{name: rules[name].kept(value) for name, value in document.items()})
