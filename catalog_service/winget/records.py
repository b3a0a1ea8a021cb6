"""A package as searches find it, and what they tell of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from catalog_service.entries import Entry
from catalog_service.version_model import PackageVersion
from catalog_service.winget.block import Record
from catalog_service.winget.contracts import since
from catalog_service.winget.fields import ANY_MARKET, NOT_IN, Field
from catalog_service.winget.names import normalized
from catalog_service.winget.offers import PACKAGED, Offer, effective_type, offers

# What an answer tells of a version.
CODES = ("PackageFamilyNames", "ProductCodes", "UpgradeCodes", "AppsAndFeaturesEntryVersions")


def record_of(entry: Entry[PackageVersion]) -> Record | None:
    """None for a package that nobody may install now, or that has nothing to be installed."""
    offered = offers(entry)
    if not offered:
        return None
    package = entry.package
    hit = {
        "PackageIdentifier": package.package_id,
        "PackageName": package.name,
        "Publisher": package.publisher,
        "Versions": [_version(offer) for offer in offered],
    }
    lines = {field.mark + value for field, value in _values(entry, offered) if value}
    needed = tuple(min(since(one.installer_type, one.nested_type) for one in offer.installers) for offer in offered)
    return Record(package.package_id, tuple(sorted(lines)), orjson.dumps(hit), needed)


def _values(entry: Entry[PackageVersion], offered: Sequence[Offer]) -> Iterator[tuple[Field, str]]:
    package = entry.package
    names = {package.name}
    yield Field.IDENTIFIER, package.package_id
    for version in (version for offer in offered for version in offer.installers):
        names.update(written.display_name for written in version.manifest.apps_and_features_entries)
        yield from ((Field.COMMAND, command) for command in version.manifest.commands)
        yield from ((Field.COMMAND, alias) for alias in version.manifest.portable_command_alias)
        yield Field.INSTALLER_TYPE, version.installer_type.lower()
        yield Field.INSTALLER_TYPE, effective_type(version).lower()
        codes = _codes(version)
        yield from ((Field.FAMILY_NAME, value) for value in codes["PackageFamilyNames"])
        yield from ((Field.PRODUCT_CODE, value) for value in codes["ProductCodes"])
        yield from ((Field.UPGRADE_CODE, value) for value in codes["UpgradeCodes"])
    yield Field.NAME, package.name
    yield from ((Field.NORMALIZED_NAME, normalized(name)) for name in names)
    yield from ((Field.MARKET, market) for market in _markets(offered))


def _markets(offered: Sequence[Offer]) -> set[str]:
    """Where there is something to be installed: any place, or these, or any but those."""
    installers = [version.manifest for offer in offered for version in offer.installers]
    anywhere = [manifest for manifest in installers if not manifest.allowed_markets]
    allowed = {market for manifest in installers for market in manifest.allowed_markets}
    if not anywhere:
        return allowed
    nowhere = set.intersection(*(set(manifest.excluded_markets) for manifest in anywhere)) - allowed
    return {ANY_MARKET, *allowed, *(NOT_IN + market for market in nowhere)}


def _version(offer: Offer) -> dict[str, Any]:
    codes = [_codes(installer) for installer in offer.installers]
    found = {name: list(dict.fromkeys(value for one in codes for value in one[name])) for name in codes[0]}
    return {"PackageVersion": offer.version, **{name: values for name, values in found.items() if values}}


def _codes(version: PackageVersion) -> Mapping[str, Iterable[str]]:
    """By what an installation of it is known; those of packaged apps have their family's name and no more."""
    if effective_type(version) in PACKAGED:
        own = {"PackageFamilyNames": [version.package_family_name]}
    else:
        written = version.manifest.apps_and_features_entries
        own = {
            "ProductCodes": [version.product_code, *(entry.product_code for entry in written)],
            "UpgradeCodes": [version.upgrade_code, *(entry.upgrade_code for entry in written)],
            "AppsAndFeaturesEntryVersions": [entry.display_version for entry in written],
        }
    return {name: [value for value in own.get(name, ()) if value] for name in CODES}
