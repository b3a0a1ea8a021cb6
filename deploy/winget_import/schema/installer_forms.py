"""A manifest's installers in the words of the interface: a form for each."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from catalog_service.model.enumerations import Architecture, FileType, Locale, Scope
from catalog_service.model.external_installers import parse_address
from common.errors import InvalidField
from deploy.publish import model
from deploy.winget_import.forms import form
from deploy.winget_import.merging import effective_type
from deploy.winget_import.problems import ManifestRefused
from deploy.winget_import.reading import Manifest
from deploy.winget_import.schema.installer_schema import Installer
from deploy.winget_import.schema.package_texts import release
from deploy.winget_import.schema.values import pascal

_GUID = re.compile(r"\{[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}")
_LOCALES = {locale.replace("_", "-").casefold(): locale for locale in Locale}
NEUTRAL = Architecture.X86  # runs on every Windows


@dataclass(frozen=True)
class Wanted:
    """An installer that is to be published, and what is kept otherwise than it is written."""

    installer: model.Installer
    notes: Sequence[str]


def wanted(manifest: Manifest, *, keep_addresses: bool = False) -> list[Wanted]:
    """The manifest's installers, which may stay at their addresses.

    Raises ManifestRefused where one cannot be published.
    """
    found: list[Wanted] = []
    for number, installer in enumerate(manifest.installers):
        try:
            one = _wanted(manifest, installer, keep_addresses=keep_addresses)
        except ManifestRefused as problem:
            raise ManifestRefused(f"Installers[{number}]: {problem.detail}") from None
        if any(other.installer.key == one.installer.key for other in found):
            raise ManifestRefused(f"Installers[{number}]: cannot be told from an earlier one here")
        found.append(one)
    return found


def _wanted(manifest: Manifest, installer: Installer, *, keep_addresses: bool) -> Wanted:
    _check(installer)
    notes: list[str] = []
    if installer.architecture == "neutral":
        notes.append(f"Architecture: neutral is kept as {NEUTRAL}")
    if keep_addresses:
        _check_address(installer)
    elif installer.authentication is not None:
        notes.append("Authentication: is left out, for the installer comes from here")
    more = [
        *_switches(installer),
        *_nested(installer),
        *_dependencies(installer),
        *_codes(installer, notes),
        *release(manifest),
        *form(_plain(installer)),
    ]
    split = [name for name, value in _plain(installer).items() if _splits(value)]
    notes += [f"{pascal(name)}: an item with a comma is kept as two" for name in split]
    language = (installer.installer_locale or "").casefold()
    published = model.Installer(
        path=Path(file_name(installer.installer_url)),
        package_id=manifest.package_id,
        version=manifest.version,
        architecture=NEUTRAL if installer.architecture == "neutral" else Architecture(installer.architecture),
        file_type=FileType((installer.installer_type or "").upper()),
        scope=Scope(installer.scope or Scope.MACHINE),
        locale=_LOCALES.get(language, Locale.EN_US),
        channel=manifest.channel or "stable",
        nested_type=(installer.nested_installer_type or "").upper(),
        more=tuple(more),
        sha256=installer.installer_sha256.lower(),
        url=installer.installer_url,
        stays=keep_addresses,
    )
    return Wanted(published, notes)


def _check_address(installer: Installer) -> None:
    """Raise ManifestRefused for an address that clients may not be sent to, or that would not let them in."""
    asked = installer.authentication
    if asked and asked.authentication_type != "none":
        raise ManifestRefused("Authentication: is not kept, and there is no installer at InstallerUrl without it")
    try:
        parse_address(installer.installer_url, "InstallerUrl")
    except InvalidField as problem:
        raise ManifestRefused(problem.detail) from None


def file_name(url: str) -> str:
    """The name that an address gives to its file; "installer" where it gives none. Raises ManifestRefused."""
    try:
        path = urlsplit(url).path
    except ValueError:
        raise ManifestRefused("InstallerUrl: is no address") from None
    return unquote(path).replace("\\", "/").rpartition("/")[2].replace("\0", "") or "installer"


def _check(installer: Installer) -> None:
    """Raise ManifestRefused for what clients refuse, or what cannot be kept here."""
    kind = effective_type(installer)
    if not installer.installer_type:
        raise ManifestRefused("InstallerType: is required, here or for all")
    if kind == "pwa":
        raise ManifestRefused("InstallerType: pwa is an address and no file that could be kept")
    if installer.installer_type == "zip" and not (installer.nested_installer_type and installer.nested_installer_files):
        raise ManifestRefused("NestedInstallerType and NestedInstallerFiles: are required with zip")
    if kind in {"msix", "appx", "font"} and (installer.product_code or installer.apps_and_features_entries):
        raise ManifestRefused(f"ProductCode and AppsAndFeaturesEntries: are not for {kind}")


def _plain(installer: Installer) -> Mapping[str, Any]:
    """What has the same name in the interface."""
    said = installer.model_dump(
        exclude_none=True,
        exclude={
            *("architecture", "installer_type", "nested_installer_type", "nested_installer_files", "scope"),
            *("installer_url", "installer_sha256", "installer_switches", "upgrade_behavior", "dependencies"),
            *("product_code", "apps_and_features_entries", "markets", "installation_metadata", "authentication"),
        },
    )
    markets = installer.markets.model_dump(exclude_none=True) if installer.markets else {}
    left = installer.installation_metadata
    return {
        **said,
        **markets,
        "default_install_location": (left and left.default_install_location) or "",
        "installed_files": [file.model_dump(exclude_none=True) for file in (left and left.files) or ()],
        "upgrades": installer.upgrade_behavior or "",
    }


def _switches(installer: Installer) -> Iterator[tuple[str, str]]:
    if installer.installer_switches:
        said = installer.installer_switches.model_dump(by_alias=True, exclude_none=True)
        yield from ((f"switch_{name}", value) for name, value in said.items())


def _nested(installer: Installer) -> Iterator[tuple[str, str]]:
    files = installer.nested_installer_files or () if installer.installer_type == "zip" else ()
    for file in files:
        yield "file_nested_path", file.relative_file_path
        if any(other.portable_command_alias for other in files):
            yield "portable_command_alias", file.portable_command_alias or ""


def _dependencies(installer: Installer) -> Iterator[tuple[str, str]]:
    needed = installer.dependencies
    if needed is None:
        return
    yield from (("dep_windows_features", name) for name in needed.windows_features or ())
    yield from (("dep_windows_libraries", name) for name in needed.windows_libraries or ())
    yield from (("dep_external", name) for name in needed.external_dependencies or ())
    for package in needed.package_dependencies or ():
        yield "dep_pkg_identifier", package.package_identifier
        yield "dep_pkg_min_version", package.minimum_version or ""


def _codes(installer: Installer, notes: list[str]) -> Iterator[tuple[str, str]]:
    """Product and upgrade codes. The interface's own fields take GUIDs; other codes stand in the entries."""
    entries = [entry.model_dump(exclude_none=True) for entry in installer.apps_and_features_entries or ()]
    code = installer.product_code or ""
    if _GUID.fullmatch(code):
        yield "productcode", code
    elif code and all(entry.get("product_code") != code for entry in entries):
        notes.append("ProductCode: is kept in AppsAndFeaturesEntries, for it is no GUID")
        without = next((entry for entry in entries if "product_code" not in entry), None)
        if without is None:
            entries.append({"product_code": code})
        else:
            without["product_code"] = code
    if entries and _GUID.fullmatch(upgrade := entries[0].get("upgrade_code", "")):
        yield "upgradecode", upgrade
    yield from form({"apps_and_features_entries": [entry for entry in entries if entry]})


def _splits(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, str) and "," in item for item in value)
