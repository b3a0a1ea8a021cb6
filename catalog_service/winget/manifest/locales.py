"""The texts of a manifest in each language."""

from collections.abc import Mapping
from typing import Any

from catalog_service.model.manifest.fields import to_document
from catalog_service.model.manifest.version import VersionManifest
from catalog_service.model.packages import Package
from catalog_service.winget.naming import with_winget_names, without_empty

DEFAULT_LANGUAGE = "en-US"
SHORT = 256  # characters of a short description
UNKNOWN_LICENSE = "Unknown"  # Manifests require a license.


def locales(package: Package, version: VersionManifest) -> Mapping[str, Any]:
    """Return `DefaultLocale`, and `Locales` if there are further languages."""
    texts = to_document(package.manifest)
    default = texts.pop("package_locale", DEFAULT_LANGUAGE)
    others = {local.pop("package_locale"): local for local in texts.pop("locales", ())}
    for local in to_document(version).get("locales", ()):
        language = local.pop("package_locale")
        others[language] = {**others.get(language, {}), **local}
    description = package.description.strip()
    first_line = description.partition("\n")[0].strip()
    short = first_line if len(first_line) <= SHORT else f"{first_line[: SHORT - 1]}…"
    own = {
        "publisher": package.publisher,
        "package_name": package.name,
        "license": UNKNOWN_LICENSE,
        "short_description": short or package.name,
        "description": description if description != short else "",
        "release_notes": version.release_notes,
        "release_notes_url": version.release_notes_url,
    }
    further = [_locale(language, local) for language, local in others.items() if local and language != default]
    return without_empty({"DefaultLocale": _locale(default, {**own, **texts}), "Locales": further})


def _locale(language: str, texts: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"PackageLocale": language, **with_winget_names(without_empty(texts))}
