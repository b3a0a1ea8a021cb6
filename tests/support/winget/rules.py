"""The rules by which winget rejects an answer. One error rejects a whole search or all versions of a manifest."""

import re
from collections.abc import Callable, Mapping
from typing import Any

_PART = r'[^.\s\\/:*?"<>|\x01-\x1f]{1,32}'
PACKAGE_ID = re.compile(rf"{_PART}(\.{_PART}){{1,7}}")
VERSION = re.compile(r'[^\\/:*?"<>|\x01-\x1f]{1,128}')
RESOLUTION = re.compile(r"custom|(16|20|24|30|32|36|40|48|60|64|72|80|96|256)x\1")
LANGUAGE = re.compile(r"([a-zA-Z]{2,3}|[iI]-[a-zA-Z]+|[xX]-[a-zA-Z]{1,8})(-[a-zA-Z0-9]{1,8})*")
PACKAGED = {"msix", "appx"}
WITH_CODE = {"msi", "wix", "exe", "inno", "nullsoft", "burn", "portable"}  # types with an entry in Apps and Features
TYPES = WITH_CODE | PACKAGED | {"zip", "font"}
TYPES_SINCE = {"zip": 4, "portable": 4, "font": 12}
ARCHITECTURES = {"x86", "x64", "arm", "arm64", "neutral"}
REQUIRED_TEXTS = ("PackageLocale", "Publisher", "PackageName", "ShortDescription", "License")

Installer = Mapping[str, Any]
# The members of the contract, by the 1.x that added them. Clients ignore unknown members.
LOCALE_MEMBERS = {
    0: (
        "PackageLocale Publisher PublisherUrl PublisherSupportUrl PrivacyUrl Author PackageName PackageUrl License "
        "LicenseUrl Copyright CopyrightUrl ShortDescription Description Tags Moniker"
    ),
    1: "Agreements ReleaseNotes ReleaseNotesUrl",
    4: "InstallationNotes PurchaseUrl Documentations",
    5: "Icons",
}
INSTALLER_MEMBERS = {
    0: (
        "InstallerIdentifier InstallerSha256 InstallerUrl Architecture InstallerLocale Platform MinimumOSVersion "
        "InstallerType Scope SignatureSha256 InstallModes InstallerSwitches InstallerSuccessCodes UpgradeBehavior "
        "Commands Protocols FileExtensions Dependencies PackageFamilyName ProductCode Capabilities "
        "RestrictedCapabilities"
    ),
    1: (
        "Markets AppsAndFeaturesEntries ExpectedReturnCodes InstallerAbortsTerminal ReleaseDate "
        "InstallLocationRequired RequireExplicitUpgrade ElevationRequirement UnsupportedOSArchitectures"
    ),
    4: "NestedInstallerType NestedInstallerFiles DisplayInstallWarnings UnsupportedArguments InstallationMetadata",
    6: "DownloadCommandProhibited",
    7: "RepairBehavior",
    9: "ArchiveBinariesDependOnPath",
    28: "DesiredStateConfiguration",
}


class AnswerRejected(Exception):
    """The client shows an error instead of the answer."""


def effective_type(installer: Installer) -> str:
    kind: str = installer["NestedInstallerType"] if installer["InstallerType"] == "zip" else installer["InstallerType"]
    return kind


def check_hit(item: Mapping[str, Any]) -> None:
    """Raise AnswerRejected for an invalid package in a search result."""
    _reject_if("a hit lacks a text", not all(_is_text(item.get(name)) for name in ("PackageName", "Publisher")))
    _reject_if("an invalid id", not PACKAGE_ID.fullmatch(item.get("PackageIdentifier", "")))
    _reject_if("a hit without versions", not item.get("Versions"))
    for version in item["Versions"]:
        _check_version(version)


def check_manifest(data: Mapping[str, Any], minor: int) -> None:
    """Raise AnswerRejected for a manifest that is invalid in the contract 1.`minor`."""
    _check_nothing_is_empty(data)
    _reject_if("an invalid id", not PACKAGE_ID.fullmatch(data.get("PackageIdentifier", "")))
    _reject_if("no versions", not data.get("Versions"))
    for version in data["Versions"]:
        _check_version(version)
        default, installers = version.get("DefaultLocale", {}), version.get("Installers", [])
        _reject_if("no text in the default locale", not all(_is_text(default.get(name)) for name in REQUIRED_TEXTS))
        for locale in (default, *version.get("Locales", [])):
            _reject_if("an invalid locale", not LANGUAGE.fullmatch(locale.get("PackageLocale", "")))
            _check_members(locale, LOCALE_MEMBERS, minor)
            _reject_if("an icon without address, type or digest", any(map(_incomplete_icon, locale.get("Icons", []))))
        _reject_if("no installers", not installers)
        for installer in installers:
            _check_members(installer, INSTALLER_MEMBERS, minor)
            for reason, wrong in INSTALLER_RULES.items():
                _reject_if(reason, wrong(installer, minor))
        identities = [_identity(installer) for installer in installers]
        _reject_if("two equal installers", len(set(identities)) < len(identities))


def _wrong_feature(installer: Installer, _: int) -> bool:
    features = installer.get("Dependencies", {}).get("WindowsFeatures", [])
    return not all(re.fullmatch("[A-Za-z0-9_-]+", feature) for feature in features)


def _unusable_configuration(installer: Installer, _: int) -> bool:
    """Whether the client would drop a module or resource, which the source must not send."""
    configuration = installer.get("DesiredStateConfiguration", {"DSCv3": {"Resources": [{"Type": "A/B"}]}})
    modules, dscv3 = configuration.get("PowerShell", []), configuration.get("DSCv3", {})
    resources = [resource.get("Name") for module in modules for resource in module.get("Resources", [{}])]
    resources += [resource.get("Type") for resource in dscv3.get("Resources", [])]
    complete = all(module.keys() == {"RepositoryUrl", "ModuleName", "Resources"} for module in modules)
    return not resources or not all(map(_is_text, resources)) or not complete


def _unknown_type(installer: Installer, minor: int) -> bool:
    kinds = {installer.get("InstallerType"), installer.get("NestedInstallerType", installer.get("InstallerType"))}
    return not kinds <= TYPES or any(minor < TYPES_SINCE.get(str(kind), 0) for kind in kinds)


def _unknown_behavior(installer: Installer, minor: int) -> bool:
    known = {"install", "uninstallPrevious"} | ({"deny"} if minor >= 6 else set())
    return installer.get("UpgradeBehavior", "install") not in known


def _return_code_twice(installer: Installer, _: int) -> bool:
    expected = [entry["InstallerReturnCode"] for entry in installer.get("ExpectedReturnCodes", [])]
    return _has_duplicates([*set(installer.get("InstallerSuccessCodes", [])), *expected])


def _archive_of_several(installer: Installer, _: int) -> bool:
    files = installer.get("NestedInstallerFiles", [])
    several = effective_type(installer) in {"portable", "font"}
    return installer["InstallerType"] == "zip" and (not files or (len(files) > 1 and not several))


def _path_leads_out(installer: Installer, _: int) -> bool:
    paths = [entry.get("RelativeFilePath", "") for entry in installer.get("NestedInstallerFiles", [])]
    return any(not path or path[0] in "/\\" or ".." in re.split(r"[/\\]", path) for path in paths)


def _nested_twice(installer: Installer, _: int) -> bool:
    files = installer.get("NestedInstallerFiles", [])
    return any(
        _has_duplicates([entry[name].casefold() for entry in files if name in entry])
        for name in ("RelativeFilePath", "PortableCommandAlias")
    )


def _approximate(installer: Installer, _: int) -> bool:
    return any(entry.get("DisplayVersion", "1")[0] in "<>" for entry in installer.get("AppsAndFeaturesEntries", []))


def _portable_with_several(installer: Installer, _: int) -> bool:
    commands, entries = (len(installer.get(name, [])) > 1 for name in ("Commands", "AppsAndFeaturesEntries"))
    return (installer["InstallerType"] == "portable" and commands) or (
        effective_type(installer) == "portable" and entries
    )


# The reasons to reject an installer, in the order of the checks.
INSTALLER_RULES: Mapping[str, Callable[[Installer, int], bool]] = {
    "an unknown type": _unknown_type,
    "an unknown architecture": lambda installer, _: installer.get("Architecture") not in ARCHITECTURES,
    "no address": lambda installer, _: not re.match(r"https?://", installer.get("InstallerUrl", "")),
    "no digest": lambda installer, _: not re.fullmatch("[0-9A-Fa-f]{64}", installer.get("InstallerSha256", "")),
    "an unknown upgrade behaviour": _unknown_behavior,
    "a product code on a packaged app": lambda installer, _: (
        "ProductCode" in installer and effective_type(installer) not in WITH_CODE
    ),
    "entries of a type without entries": lambda installer, _: (
        "AppsAndFeaturesEntries" in installer and effective_type(installer) not in WITH_CODE
    ),
    "an approximate version": _approximate,
    "a family name of a type without one": lambda installer, minor: (
        minor <= 1 and "PackageFamilyName" in installer and effective_type(installer) not in PACKAGED
    ),
    "a portable program with several commands or entries": _portable_with_several,
    "an invalid locale": lambda installer, _: not LANGUAGE.fullmatch(installer.get("InstallerLocale", "en")),
    "allowed and excluded markets": lambda installer, _: len(installer.get("Markets", {})) > 1,
    "a repeated return code": _return_code_twice,
    "an archive with no or several installers": _archive_of_several,
    "a path outside the archive": _path_leads_out,
    "a repeated path or alias": _nested_twice,
    "an invalid Windows feature": _wrong_feature,
    "a configuration without resources": _unusable_configuration,
}


def _incomplete_icon(icon: Mapping[str, Any]) -> bool:
    """The client shows an icon only with its digest."""
    digest, resolution = icon.get("IconSha256", ""), icon.get("IconResolution", "custom")
    complete = re.match(r"https?://", icon.get("IconUrl", "")) and icon.get("IconFileType") in {"png", "jpeg", "ico"}
    return not complete or not re.fullmatch("[0-9A-Fa-f]{64}", digest) or not RESOLUTION.fullmatch(resolution)


def _check_members(item: Mapping[str, Any], members: Mapping[int, str], minor: int) -> None:
    known = {name for since, names in members.items() if since <= minor for name in names.split()}
    _reject_if(f"members that the contract does not have: {item.keys() - known}", not item.keys() <= known)


def _check_version(version: Mapping[str, Any]) -> None:
    text = version.get("PackageVersion", "")
    _reject_if("an invalid version", not _is_text(text) or not VERSION.fullmatch(text) or text[0] in "<>")
    _reject_if("a channel", bool(version.get("Channel")))


def _check_nothing_is_empty(value: object) -> None:
    _reject_if("an empty value", value in ("", None))
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_nothing_is_empty(member)


def _identity(installer: Installer) -> tuple[str, ...]:
    types = (
        installer.get(name, "").casefold().replace("appx", "msix") for name in ("InstallerType", "NestedInstallerType")
    )
    return *types, *(installer.get(name, "").casefold() for name in ("Architecture", "InstallerLocale", "Scope"))


def _has_duplicates(values: list[Any]) -> bool:
    return len(set(values)) < len(values)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _reject_if(reason: str, wrong: bool) -> None:
    if wrong:
        raise AnswerRejected(reason)
