"""A package's texts in the words of the interface, and what they say of one version only."""

from collections.abc import Mapping
from typing import Any

from deploy.publish.model import NewPackage
from deploy.winget_import.forms import form
from deploy.winget_import.reading import Manifest
from deploy.winget_import.schema.text_schema import DefaultTexts, Texts

_LINES = frozenset(["description", "agreement", "release_notes", "installation_notes"])
_RELEASE = ("release_notes", "release_notes_url")


def new_package(manifest: Manifest) -> NewPackage:
    """The package that a manifest is of."""
    texts = _texts(manifest.texts)
    name, publisher = texts.pop("package_name"), texts.pop("publisher")
    locales = [_without(_texts(locale), *_RELEASE) for locale in manifest.locales]
    fields = {**_without(texts, "description", *_RELEASE), "locales": locales}
    return NewPackage(name, publisher, texts.get("description", ""), more=tuple(form(fields)))


def release(manifest: Manifest) -> list[tuple[str, str]]:
    """What the texts say of the version: a package's form has no place for it."""
    texts = _texts(manifest.texts)
    locales = [
        {name: texts[name] for name in ("package_locale", *_RELEASE) if name in texts}
        for texts in map(_texts, manifest.locales)
    ]
    said = {name: texts[name] for name in _RELEASE if name in texts}
    return list(form({**said, "locales": [locale for locale in locales if len(locale) > 1]}))


def _texts(texts: Texts) -> dict[str, Any]:
    """What is said in one language, in lines only where the interface keeps them."""
    said = texts.model_dump(exclude_none=True, include=set(DefaultTexts.model_fields))
    return {name: _lined(name, value) for name, value in said.items()}


def _lined(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {member: _lined(member, one) for member, one in value.items()}
    if isinstance(value, list):
        return [_lined(name, one) for one in value]
    return " ".join(value.split()) if isinstance(value, str) and name not in _LINES else value


def _without(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
