"""The forms of a package, and of the release notes of a version, from the texts of a manifest."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from deploy.publish.model import NewPackage
from deploy.winget_manifests.manifest import Manifest
from deploy.winget_manifests.schema.files import DefaultTexts, LocaleTexts

_WITH_LINES = frozenset(["description", "agreement", "release_notes", "installation_notes"])
_RELEASE = ("release_notes", "release_notes_url")


def new_package(manifest: Manifest) -> NewPackage:
    """Return the package of a manifest."""
    texts = _texts(manifest.texts)
    name, publisher = texts.pop("package_name"), texts.pop("publisher")
    locales = [_without(_texts(locale), *_RELEASE) for locale in manifest.locales]
    fields = {**_without(texts, "description", *_RELEASE), "locales": locales}
    return NewPackage(name, publisher, texts.get("description", ""), more=tuple(form_fields(fields)))


def release_fields(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the form fields of the release notes: they belong to the version, not to the package."""
    texts = _texts(manifest.texts)
    locales = [
        {name: texts[name] for name in ("package_locale", *_RELEASE) if name in texts}
        for texts in map(_texts, manifest.locales)
    ]
    release = {name: texts[name] for name in _RELEASE if name in texts}
    yield from form_fields({**release, "locales": [locale for locale in locales if len(locale) > 1]})


def form_fields(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield fields as a form has them, without empty ones."""
    for name, value in fields.items():
        if not value:
            continue
        if isinstance(value, dict) or (isinstance(value, list) and isinstance(value[0], dict)):
            yield name, orjson.dumps(value).decode()
        elif isinstance(value, list):
            yield name, ",".join(map(str, value))
        else:
            yield name, "1" if value is True else str(value)


def _texts(texts: LocaleTexts) -> dict[str, Any]:
    """Return the texts of one language, with line breaks only where forms allow them."""
    fields = texts.model_dump(mode="json", exclude_unset=True, include=set(DefaultTexts.model_fields))
    return {name: _on_one_line(name, value) for name, value in fields.items()}


def _on_one_line(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {member: _on_one_line(member, text) for member, text in value.items()}
    if isinstance(value, list):
        return [_on_one_line(name, item) for item in value]
    return " ".join(value.split()) if isinstance(value, str) and name not in _WITH_LINES else value


def _without(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
