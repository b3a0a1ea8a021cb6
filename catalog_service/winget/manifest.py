"""A package's manifest, as winget reads it; nothing in it is empty."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from catalog_service.entries import Entry
from catalog_service.enumerations import FileType
from catalog_service.manifests.values import plain
from catalog_service.model import Package
from catalog_service.version_model import Dependencies, PackageVersion
from catalog_service.winget.contracts import Contract, since
from catalog_service.winget.offers import PACKAGED, Offer, effective_type, installer_locale, offers

SHORT = 256  # characters of a short description
UNKNOWN_LICENSE = "Unknown"  # It is wanted of every package, and told of few.
_CAPITALS = {"os": "OS"}

Address = Callable[[PackageVersion], str]


def manifest(
    entry: Entry[PackageVersion], contract: Contract, address: Address, *, version: str = "", market: str = ""
) -> dict[str, Any] | None:
    """All that is offered of a package in a market, or of one version of it; None where that is nothing.

    `address` gives the address of an installer.
    """
    wanted = version.casefold()
    versions = [
        {**_locales(entry.package, offer), "PackageVersion": offer.version, "Installers": installers}
        for offer in offers(entry)
        if wanted in {"", offer.version.casefold()}
        and (installers := [_installer(one, address) for one in _known(offer, contract, market.upper())])
    ]
    if not versions:
        return None
    return contract.known({"PackageIdentifier": entry.package.package_id, "Versions": versions})


def _known(offer: Offer, contract: Contract, market: str) -> Iterator[PackageVersion]:
    for version in offer.installers:
        allowed, excluded = version.manifest.allowed_markets, version.manifest.excluded_markets
        welcome = not market or (market in allowed if allowed else market not in excluded)
        if welcome and contract.minor >= since(version.installer_type, version.nested_type):
            yield version


def _locales(package: Package, offer: Offer) -> dict[str, Any]:
    description = package.description.strip()
    short = description.partition("\n")[0].strip()
    default = {
        "PackageLocale": "en-US",
        "Publisher": package.publisher,
        "PackageName": package.name,
        "License": UNKNOWN_LICENSE,
        "ShortDescription": (short if len(short) <= SHORT else f"{short[: SHORT - 1]}…") or package.name,
        "Description": description if description != short else "",
    }
    return {"DefaultLocale": _said(default)}


def _installer(version: PackageVersion, address: Address) -> dict[str, Any]:
    told = plain(version.manifest)
    kind, packaged = effective_type(version), effective_type(version) in PACKAGED
    for elsewhere in ("release_notes", "release_notes_url", "locales", "portable_command_alias"):
        told.pop(elsewhere, None)
    markets = {name: told.pop(name) for name in ("allowed_markets", "excluded_markets") if name in told}
    left = {"default_install_location": told.pop("default_install_location", "")}
    left["files"] = told.pop("installed_files", [])
    entries = told.pop("apps_and_features_entries", [])
    for entry in entries:
        if "installer_type" in entry:
            entry["installer_type"] = entry["installer_type"].lower()
    if version.upgrade_code and not any("upgrade_code" in entry for entry in entries):
        entries = (
            [{"upgrade_code": version.upgrade_code}]
            if not entries
            else [{**entries[0], "upgrade_code": version.upgrade_code}, *entries[1:]]
        )
    switches = asdict(version.switches)
    return _said(
        {
            "Architecture": version.architecture.value,
            "InstallerType": version.installer_type.lower(),
            "InstallerUrl": address(version),
            "InstallerSha256": version.sha256.upper(),
            "Scope": version.scope.value,
            "UpgradeBehavior": version.upgrades.value,
            "ProductCode": "" if packaged else version.product_code,
            "PackageFamilyName": version.package_family_name if packaged else "",
            "AppsAndFeaturesEntries": [] if packaged or kind is FileType.FONT else _pascal(entries),
            "InstallerSwitches": _pascal({name: text for name, text in switches.items() if text}),
            "Dependencies": _dependencies(version.dependencies),
            "InstallationMetadata": _said(_pascal(left)),
            "Markets": _pascal(markets),
            **_nested(version),
            **_pascal(told),
            "InstallerLocale": installer_locale(version),
        }
    )


def _nested(version: PackageVersion) -> dict[str, Any]:
    if version.installer_type is not FileType.ZIP or version.nested_type is None:
        return {}
    aliases = version.manifest.portable_command_alias or ("",) * len(version.nested_paths)
    return {
        "NestedInstallerType": version.nested_type.lower(),
        "NestedInstallerFiles": [
            _said({"RelativeFilePath": path, "PortableCommandAlias": alias})
            for path, alias in zip(version.nested_paths, aliases, strict=True)
        ],
    }


def _dependencies(needed: Dependencies) -> dict[str, Any]:
    packages = [
        _said({"PackageIdentifier": package.package_id, "MinimumVersion": package.min_version})
        for package in needed.packages
    ]
    return _said(
        {
            "WindowsFeatures": list(needed.windows_features),
            "WindowsLibraries": list(needed.windows_libraries),
            "PackageDependencies": packages,
            "ExternalDependencies": list(needed.external),
        }
    )


def _said(members: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is empty."""
    return {name: value for name, value in members.items() if value not in ("", [], {}, None)}


def _pascal(value: Any) -> Any:
    """The same with the protocol's names: `minimum_os_version` is `MinimumOSVersion`."""
    if isinstance(value, dict):
        return {
            "".join(_CAPITALS.get(word, word.capitalize()) for word in name.split("_")): _pascal(member)
            for name, member in value.items()
        }
    return [_pascal(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
