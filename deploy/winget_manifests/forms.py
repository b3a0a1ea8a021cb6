"""The creation forms of a manifest's package and installers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

from catalog_service.model.enumerations import Architecture, FileType, Locale, Scope
from catalog_service.model.installers import parse_address
from catalog_service.model.manifest_fields import pascal
from common.errors import InvalidField
from deploy.publish import model
from deploy.publish.model import NewPackage
from deploy.winget_manifests.manifest import Manifest, ManifestRefused, effective_type
from deploy.winget_manifests.schema import DefaultTexts, Installer, InstallerSwitches, LocaleTexts

_WITH_LINES = frozenset(["description", "agreement", "release_notes", "installation_notes"])
_RELEASE = ("release_notes", "release_notes_url")
_GUID = re.compile(r"\{[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}")
_LOCALES = {locale.replace("_", "-").casefold(): locale for locale in Locale}
NEUTRAL = Architecture.X86  # runs on every Windows


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


@dataclass(frozen=True)
class ManifestInstaller:
    """An installer to publish. Each note describes a field that is stored otherwise than the manifest has it."""

    installer: model.Installer
    notes: Sequence[str]


def manifest_installers(manifest: Manifest, *, keep_addresses: bool = False) -> list[ManifestInstaller]:
    """Return the manifest's installers, which may stay at their addresses.

    Raises ManifestRefused if one cannot be published.
    """
    converted: list[ManifestInstaller] = []
    for number, installer in enumerate(manifest.installers):
        try:
            new = _convert(manifest, installer, keep_addresses=keep_addresses)
        except ManifestRefused as problem:
            raise ManifestRefused(f"Installers[{number}]: {problem.detail}") from None
        if any(other.installer.key == new.installer.key for other in converted):
            raise ManifestRefused(f"Installers[{number}]: cannot be told from an earlier one here")
        converted.append(new)
    return converted


def _convert(manifest: Manifest, installer: Installer, *, keep_addresses: bool) -> ManifestInstaller:
    _check_publishable(installer)
    notes: list[str] = []
    if installer.architecture == "neutral":
        notes.append(f"Architecture: neutral is kept as {NEUTRAL}")
    if keep_addresses:
        _check_address(installer)
    elif installer.authentication is not None:
        notes.append("Authentication: is left out, for the installer comes from here")
    fields = _same_in_form(installer)
    switches = (installer.installer_switches or InstallerSwitches()).model_dump(by_alias=True, exclude_unset=True)
    more = [
        *((f"switch_{name}", value) for name, value in switches.items()),
        *_nested(installer),
        *_dependencies(installer),
        *_codes(installer, notes),
        *release_fields(manifest),
        *form_fields(fields),
    ]
    notes += [f"{pascal(name)}: an item with a comma is kept as two" for name in fields if _has_comma(fields[name])]
    converted = model.Installer(
        path=Path(file_name(installer.installer_url)),
        package_id=manifest.package_id,
        version=manifest.version,
        architecture=NEUTRAL if installer.architecture == "neutral" else Architecture(installer.architecture),
        file_type=FileType((installer.installer_type or "").upper()),
        scope=Scope(installer.scope or Scope.MACHINE),
        locale=_LOCALES.get(installer.installer_locale.casefold(), Locale.EN_US),
        channel=manifest.channel or "stable",
        nested_type=(installer.nested_installer_type or "").upper(),
        more=tuple(more),
        sha256=installer.installer_sha256.lower(),
        url=installer.installer_url,
        stays=keep_addresses,
    )
    return ManifestInstaller(converted, notes)


def _check_address(installer: Installer) -> None:
    """Raise ManifestRefused for an address that is not allowed for clients, or that needs authentication."""
    authentication = installer.authentication
    if authentication and authentication.authentication_type != "none":
        raise ManifestRefused("Authentication: is not kept, and there is no installer at InstallerUrl without it")
    try:
        parse_address(installer.installer_url, "InstallerUrl")
    except InvalidField as problem:
        raise ManifestRefused(problem.detail) from None


def file_name(url: str) -> str:
    """Return the name of the file in an address, "installer" if it has none. Raises ManifestRefused."""
    try:
        path = urlsplit(url).path
    except ValueError:
        raise ManifestRefused("InstallerUrl: is no address") from None
    return unquote(path).replace("\\", "/").rpartition("/")[2].replace("\0", "") or "installer"


def _check_publishable(installer: Installer) -> None:
    """Raise ManifestRefused for an installer that clients refuse, or that cannot be stored."""
    kind = effective_type(installer)
    if not installer.installer_type:
        raise ManifestRefused("InstallerType: is required, here or for all")
    if kind == "pwa":
        raise ManifestRefused("InstallerType: pwa is an address and no file that could be kept")
    if installer.installer_type == "zip" and not (installer.nested_installer_type and installer.nested_installer_files):
        raise ManifestRefused("NestedInstallerType and NestedInstallerFiles: are required with zip")
    if kind in {"msix", "appx", "font"} and (installer.product_code or installer.apps_and_features_entries):
        raise ManifestRefused(f"ProductCode and AppsAndFeaturesEntries: are not for {kind}")


def _same_in_form(installer: Installer) -> dict[str, Any]:
    """Return the fields whose values are the same in the creation form."""
    fields = installer.model_dump(
        mode="json",
        exclude_unset=True,
        exclude={
            *("architecture", "installer_type", "nested_installer_type", "nested_installer_files", "scope"),
            *("installer_url", "installer_sha256", "installer_switches", "upgrade_behavior", "dependencies"),
            *("product_code", "apps_and_features_entries", "authentication"),
        },
    )
    markets = fields.pop("markets", {})
    metadata = fields.pop("installation_metadata", {})
    return {
        **fields,
        **markets,
        "default_install_location": metadata.get("default_install_location", ""),
        "installed_files": metadata.get("files", []),
        "upgrades": installer.upgrade_behavior or "",
    }


def _nested(installer: Installer) -> Iterator[tuple[str, str]]:
    files = installer.nested_installer_files if installer.installer_type == "zip" else ()
    for file in files:
        yield "file_nested_path", file.relative_file_path
        if any(other.portable_command_alias for other in files):
            yield "portable_command_alias", file.portable_command_alias


def _dependencies(installer: Installer) -> Iterator[tuple[str, str]]:
    dependencies = installer.dependencies
    if dependencies is None:
        return
    yield from (("dep_windows_features", name) for name in dependencies.windows_features)
    yield from (("dep_windows_libraries", name) for name in dependencies.windows_libraries)
    yield from (("dep_external", name) for name in dependencies.external_dependencies)
    for package in dependencies.package_dependencies:
        yield "dep_pkg_identifier", package.package_identifier
        yield "dep_pkg_min_version", package.minimum_version


def _codes(installer: Installer, notes: list[str]) -> Iterator[tuple[str, str]]:
    """Yield product and upgrade codes. The form's own fields take GUIDs only, so other codes go into the entries."""
    entries = [entry.model_dump(mode="json", exclude_unset=True) for entry in installer.apps_and_features_entries]
    code = installer.product_code
    if _GUID.fullmatch(code):
        yield "productcode", code
    elif code and all(entry.get("product_code") != code for entry in entries):
        notes.append("ProductCode: is kept in AppsAndFeaturesEntries, for it is no GUID")
        without_code = next((entry for entry in entries if "product_code" not in entry), None)
        if without_code is None:
            entries.append({"product_code": code})
        else:
            without_code["product_code"] = code
    if entries and _GUID.fullmatch(upgrade := entries[0].get("upgrade_code", "")):
        yield "upgradecode", upgrade
    yield from form_fields({"apps_and_features_entries": [entry for entry in entries if entry]})


def _has_comma(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, str) and "," in item for item in value)
