"""A package as searches find it, and what they tell of it."""

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

# What a search tells of a version, where it may be searched for too.
CODE_FIELDS = {
    "PackageFamilyNames": Field.FAMILY_NAME,
    "ProductCodes": Field.PRODUCT_CODE,
    "UpgradeCodes": Field.UPGRADE_CODE,
}


def record_of(entry: WholeEntry) -> Record | None:
    """None for a package of which nothing is offered."""
    offered = installable_versions(entry)
    if not offered:
        return None
    package = entry.package.package
    known_by = {installer.uid: _codes(installer) for offer in offered for installer in offer.installers}
    hit = {
        "PackageIdentifier": package.package_id,
        "PackageName": package.name,
        "Publisher": package.publisher,
        "Versions": [_version(offer, known_by) for offer in offered],
    }
    values = {(field, value) for field, value in _values(entry, offered) if value}
    for of_version in known_by.values():
        values |= {(field, value) for name, field in CODE_FIELDS.items() for value in of_version.get(name, ())}
    texts = {field.mark + value for field, value in values if field in TEXTS}
    codes = {field.mark + folded(value) for field, value in values if field not in TEXTS}
    needed = tuple(
        min(since_contract(one.installer_type, one.nested_type) for one in offer.installers) for offer in offered
    )
    return Record(package.package_id, tuple(sorted(texts)), tuple(sorted(codes)), orjson.dumps(hit), needed)


def _values(entry: WholeEntry, offered: Sequence[InstallableVersion]) -> Iterator[tuple[Field, str]]:
    package, said = entry.package.package, entry.package.manifest
    shown = {package.name, *(local.package_name for local in said.locales)}
    written: set[str] = set()
    yield Field.IDENTIFIER, package.package_id
    yield Field.MONIKER, said.moniker
    for texts in (said, *said.locales):
        yield from ((Field.TAG, tag) for tag in texts.tags)
    for version in (version for offer in offered for version in offer.installers):
        manifest = version.manifest
        written.update(entry.display_name for entry in manifest.apps_and_features_entries)
        yield from ((Field.COMMAND, command) for command in (*manifest.commands, *manifest.portable_command_alias))
        yield from ((Field.INSTALLER_TYPE, kind) for kind in (version.installer_type, version.effective_type) if kind)
    yield from ((Field.NAME, name) for name in shown)
    yield from ((Field.NORMALIZED_NAME, normalized(name)) for name in shown | written)
    yield from ((Field.MARKET, market) for market in _markets(offered))


def _markets(offered: Sequence[InstallableVersion]) -> set[str]:
    """Where there is something to be installed: in these, or anywhere, or anywhere but there."""
    installers = [version.manifest for offer in offered for version in offer.installers]
    anywhere = [manifest for manifest in installers if not manifest.allowed_markets]
    allowed = {market for manifest in installers for market in manifest.allowed_markets}
    if not anywhere:
        return allowed
    nowhere = set.intersection(*(set(manifest.excluded_markets) for manifest in anywhere)) - allowed
    return {ANY_MARKET, *(NOT_IN + market for market in nowhere)}


def _version(offer: InstallableVersion, known_by: Mapping[str, Mapping[str, Sequence[str]]]) -> Mapping[str, Any]:
    found: dict[str, list[str]] = {}
    for installer in offer.installers:
        for name, values in known_by[installer.uid].items():
            listed = found.setdefault(name, [])
            listed += [value for value in values if value not in listed]
    return {"PackageVersion": offer.version, **found}


def _codes(version: PackageVersion) -> Mapping[str, Sequence[str]]:
    """By what an installation of it is known, as far as that is said."""
    written = version.manifest.apps_and_features_entries
    found = {
        "PackageFamilyNames": (version.package_family_name,),
        "ProductCodes": (version.product_code, *(entry.product_code for entry in written)),
        "UpgradeCodes": (version.upgrade_code, *(entry.upgrade_code for entry in written)),
        "AppsAndFeaturesEntryVersions": tuple(entry.display_version for entry in written),
    }
    return {name: said for name, values in found.items() if (said := [value for value in values if value])}
