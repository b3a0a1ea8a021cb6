"""Builds the index records of packages."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from catalog_service.catalog.reader import WholeEntry
from catalog_service.model.versions import PackageVersion
from catalog_service.winget.contracts import since_contract
from catalog_service.winget.installable import InstallableVersion, installable_versions
from catalog_service.winget.search.fields import ANY_MARKET, NOT_IN, TEXTS, Field, folded
from catalog_service.winget.search.index_segment import Record
from catalog_service.winget.search.names import normalized

# The members of search results that can be searched, too.
CODE_FIELDS = {
    "PackageFamilyNames": Field.FAMILY_NAME,
    "ProductCodes": Field.PRODUCT_CODE,
    "UpgradeCodes": Field.UPGRADE_CODE,
}


def record_of(entry: WholeEntry) -> Record | None:
    """Return the record of a package, None if no version is installable."""
    installable = installable_versions(entry)
    if not installable:
        return None
    package = entry.package
    codes_by_uid = {installer.uid: _codes(installer) for release in installable for installer in release.installers}
    hit = {
        "PackageIdentifier": package.package_id,
        "PackageName": package.name,
        "Publisher": package.publisher,
        "Versions": [_version(release, codes_by_uid) for release in installable],
    }
    values = {(field, value) for field, value in _values(entry, installable) if value}
    for version_codes in codes_by_uid.values():
        values |= {(field, value) for name, field in CODE_FIELDS.items() for value in version_codes.get(name, ())}
    texts = {field.mark + value for field, value in values if field in TEXTS}
    codes = {field.mark + folded(value) for field, value in values if field not in TEXTS}
    since = tuple(
        min(since_contract(one.installer_type, one.nested_type) for one in release.installers)
        for release in installable
    )
    return Record(package.package_id, tuple(sorted(texts)), tuple(sorted(codes)), orjson.dumps(hit), since)


def _values(entry: WholeEntry, installable: Sequence[InstallableVersion]) -> Iterator[tuple[Field, str]]:
    package, package_manifest = entry.package, entry.package.manifest
    names = {package.name, *(local.package_name for local in package_manifest.locales)}
    entry_names: set[str] = set()
    yield Field.IDENTIFIER, package.package_id
    yield Field.MONIKER, package_manifest.moniker
    for texts in (package_manifest, *package_manifest.locales):
        yield from ((Field.TAG, tag) for tag in texts.tags)
    for version in (version for release in installable for version in release.installers):
        manifest = version.manifest
        entry_names.update(entry.display_name for entry in manifest.apps_and_features_entries)
        yield from ((Field.COMMAND, command) for command in (*manifest.commands, *manifest.portable_command_alias))
        yield from ((Field.INSTALLER_TYPE, kind) for kind in (version.installer_type, version.effective_type) if kind)
    yield from ((Field.NAME, name) for name in names)
    yield from ((Field.NORMALIZED_NAME, normalized(name)) for name in names | entry_names)
    yield from ((Field.MARKET, market) for market in _markets(installable))


def _markets(installable: Sequence[InstallableVersion]) -> set[str]:
    """Return the markets with an installer: a list, or all markets, possibly with exceptions."""
    installers = [version.manifest for release in installable for version in release.installers]
    anywhere = [manifest for manifest in installers if not manifest.allowed_markets]
    allowed = {market for manifest in installers for market in manifest.allowed_markets}
    if not anywhere:
        return allowed
    excluded = set.intersection(*(set(manifest.excluded_markets) for manifest in anywhere)) - allowed
    return {ANY_MARKET, *(NOT_IN + market for market in excluded)}


def _version(release: InstallableVersion, codes_by_uid: Mapping[str, Mapping[str, Sequence[str]]]) -> Mapping[str, Any]:
    codes: dict[str, list[str]] = {}
    for installer in release.installers:
        for name, values in codes_by_uid[installer.uid].items():
            listed = codes.setdefault(name, [])
            listed += [value for value in values if value not in listed]
    return {"PackageVersion": release.version, **codes}


def _codes(version: PackageVersion) -> Mapping[str, Sequence[str]]:
    """Return the codes that identify an installation."""
    entries = version.manifest.apps_and_features_entries
    codes = {
        "PackageFamilyNames": (version.package_family_name,),
        "ProductCodes": (version.product_code, *(entry.product_code for entry in entries)),
        "UpgradeCodes": (version.upgrade_code, *(entry.upgrade_code for entry in entries)),
        "AppsAndFeaturesEntryVersions": tuple(entry.display_version for entry in entries),
    }
    return {name: present for name, values in codes.items() if (present := [value for value in values if value])}
