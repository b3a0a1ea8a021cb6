"""Builds the manifest of a package for winget clients."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from catalog_service.catalog.reader import WholeEntry
from catalog_service.model.manifest.fields import to_document
from catalog_service.model.manifest.version import VersionManifest
from catalog_service.model.packages import Package
from catalog_service.model.versions import PackageVersion
from catalog_service.winget.contracts import Contract, since_contract, with_winget_names, without_empty
from catalog_service.winget.installable import installable_versions
from catalog_service.winget.manifest.installers import installer
from catalog_service.winget.search.requests import Query

DEFAULT_LANGUAGE = "en-US"
SHORT = 256  # characters of a short description
UNKNOWN_LICENSE = "Unknown"  # Manifests require a license.
Address = Callable[[PackageVersion], str]


def manifest(entry: WholeEntry, contract: Contract, query: Query, address: Address) -> Mapping[str, Any] | None:
    """Return the manifest, None if the client can install nothing; `address` returns an installer's address."""
    requested = query.version.casefold()
    versions = [
        {
            "PackageVersion": version,
            **contract.supported(_locales(entry.package, supported[0].manifest)),
            "Installers": [installer(each, contract, address(each)) for each in supported],
        }
        for version, installers in installable_versions(entry).items()
        if requested in {"", version.casefold()}
        and (supported := list(_supported_installers(installers, contract, query.market)))
    ]
    return {"PackageIdentifier": entry.package.package_id, "Versions": versions} if versions else None


def _supported_installers(
    installers: Sequence[PackageVersion], contract: Contract, market: str
) -> Iterator[PackageVersion]:
    """Yield the installers that the contract supports in this market."""
    for version in installers:
        allowed, excluded = version.manifest.allowed_markets, version.manifest.excluded_markets
        in_market = not market or (market.upper() in allowed if allowed else market.upper() not in excluded)
        if in_market and contract.minor >= since_contract(version.installer_type, version.nested_type):
            yield version


def _locales(package: Package, version: VersionManifest) -> Mapping[str, Any]:
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
