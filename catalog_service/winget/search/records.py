"""Builds the index records of packages."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson

from catalog_service.catalog.reader import WholeEntry
from catalog_service.model.identities import folded
from catalog_service.model.manifest.version import VersionManifest
from catalog_service.model.packages import Package
from catalog_service.model.program_names import normalized
from catalog_service.model.versions import PackageVersion
from catalog_service.winget.contracts import since_contract
from catalog_service.winget.installable import installable_versions
from catalog_service.winget.search.fields import ANY_MARKET, NOT_IN, TEXTS, Field
from catalog_service.winget.search.index import Record

# The members of search results that can be searched, too.
CODE_FIELDS = {
    "PackageFamilyNames": Field.FAMILY_NAME,
    "ProductCodes": Field.PRODUCT_CODE,
    "UpgradeCodes": Field.UPGRADE_CODE,
}


def records_of(entry: WholeEntry, rings: Sequence[str]) -> Sequence[Record]:
    """Return the records of a package, one for all of a tenant's rings that see the same."""
    rendered = entry.rendered(rings, record_of)
    return [replace(record, rings=seen_by) if seen_by else record for record, seen_by in rendered]


def record_of(entry: WholeEntry) -> Record | None:
    """Return the record of a package, None if no version is installable."""
    installable = installable_versions(entry)
    if not installable:
        return None
    package = entry.package
    versions = [{"PackageVersion": version, **_codes(installers)} for version, installers in installable.items()]
    result = {
        "PackageIdentifier": package.package_id,
        "PackageName": package.name,
        "Publisher": package.publisher,
        "Versions": versions,
    }
    installers = [installer for of_version in installable.values() for installer in of_version]
    values = {(field, value) for field, value in _values(entry.package, installers) if value}
    for version in versions:
        values |= {(field, value) for name, field in CODE_FIELDS.items() for value in version.get(name, ())}
    texts = {field.mark + value for field, value in values if field in TEXTS}
    codes = {field.mark + folded(value) for field, value in values if field not in TEXTS}
    since = tuple(
        min(since_contract(version.installer_type, version.nested_type) for version in of_version)
        for of_version in installable.values()
    )
    return Record(package.package_id, tuple(sorted(texts)), tuple(sorted(codes)), orjson.dumps(result), since)


def _values(package: Package, installers: Sequence[PackageVersion]) -> Iterator[tuple[Field, str]]:
    names = {package.name, *(local.package_name for local in package.manifest.locales)}
    entry_names: set[str] = set()
    yield Field.IDENTIFIER, package.package_id
    yield Field.MONIKER, package.manifest.moniker
    for texts in (package.manifest, *package.manifest.locales):
        yield from ((Field.TAG, tag) for tag in texts.tags)
    for version in installers:
        manifest = version.manifest
        entry_names.update(entry.display_name for entry in manifest.apps_and_features_entries)
        yield from ((Field.COMMAND, command) for command in (*manifest.commands, *manifest.portable_command_alias))
        yield from ((Field.INSTALLER_TYPE, kind) for kind in (version.installer_type, version.effective_type) if kind)
    yield from ((Field.NAME, name) for name in names)
    yield Field.PUBLISHER, package.publisher
    yield from ((Field.PUBLISHER, local.publisher) for local in package.manifest.locales)
    yield from ((Field.NORMALIZED_NAME, normalized(name)) for name in names | entry_names)
    yield from ((Field.MARKET, market) for market in _markets([version.manifest for version in installers]))


def _markets(manifests: Sequence[VersionManifest]) -> set[str]:
    """Return the markets with an installer: a list, or all markets, possibly with exceptions."""
    anywhere = [manifest for manifest in manifests if not manifest.allowed_markets]
    allowed = {market for manifest in manifests for market in manifest.allowed_markets}
    if not anywhere:
        return allowed
    excluded = set.intersection(*(set(manifest.excluded_markets) for manifest in anywhere)) - allowed
    return {ANY_MARKET, *(NOT_IN + market for market in excluded)}


def _codes(installers: Sequence[PackageVersion]) -> dict[str, Any]:
    """Return the codes that identify an installation of a version, each once."""
    codes: dict[str, dict[str, None]] = defaultdict(dict)
    for version in installers:
        entries = version.manifest.apps_and_features_entries
        values = {
            "PackageFamilyNames": [version.package_family_name],
            "ProductCodes": [version.product_code, *(entry.product_code for entry in entries)],
            "UpgradeCodes": [version.upgrade_code, *(entry.upgrade_code for entry in entries)],
            "AppsAndFeaturesEntryVersions": [entry.display_version for entry in entries],
        }
        for name, listed in values.items():
            codes[name] |= dict.fromkeys(filter(None, listed))
    return {name: list(listed) for name, listed in codes.items() if listed}
