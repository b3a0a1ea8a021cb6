"""The base of winget's manifest schema: models that are read from forms, manifest files and documents."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator

from catalog_service.model.manifest.lists import Records, from_json
from catalog_service.model.manifest.values import Rule, Source
from common.errors import InvalidField
from common.http.forms import Form

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
