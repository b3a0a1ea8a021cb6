"""The schema version that brought each field and value. Clients ignore newer ones, so a manifest must not have them."""

from collections.abc import Iterator, Mapping
from typing import Any

NEWEST = 28  # of the versions 1.x

# `catalog_service.winget.contracts` has a table of its own, because contracts have another history: there is no
# contract 1.2, responses have members that no manifest has, and they have no Authentication.
_SINCE = {
    name: minor
    for minor, names in {
        1: (
            "Agreements ReleaseNotes ReleaseNotesUrl AppsAndFeaturesEntries ElevationRequirement ExpectedReturnCodes "
            "InstallerAbortsTerminal InstallLocationRequired Markets ReleaseDate RequireExplicitUpgrade "
            "UnsupportedOSArchitectures"
        ),
        2: (
            "DisplayInstallWarnings Documentations InstallationNotes PurchaseUrl ReturnResponseUrl UnsupportedArguments"
        ),
        4: "InstallationMetadata NestedInstallerFiles NestedInstallerType",
        5: "Icons",
        6: "DownloadCommandProhibited",
        7: "Repair RepairBehavior",
        9: "ArchiveBinariesDependOnPath",
        10: "Authentication",
        28: "DesiredStateConfiguration",
    }.items()
    for name in names.split()
}
_VALUES_SINCE = {
    ("InstallerType", "portable"): 2,
    ("InstallerType", "font"): 12,
    ("NestedInstallerType", "font"): 12,
    ("UpgradeBehavior", "deny"): 6,
    ("ReturnResponse", "custom"): 2,
    ("ReturnResponse", "invalidParameter"): 2,
    ("ReturnResponse", "packageInUseByApplication"): 2,
    ("ReturnResponse", "systemNotSupported"): 2,
}


def newer_fields(value: Any, minor: int, parent: str = "") -> Iterator[str]:
    """Yield a reason for each field and value that a manifest of the version 1.`minor` must not have."""
    for name, member in _members(value):
        place = f"{parent}[{name}]" if isinstance(name, int) else f"{parent}.{name}".strip(".")
        if (since := _SINCE.get(str(name), 0)) > minor:
            yield f"{place} is there from ManifestVersion 1.{since} on"
        if isinstance(member, str) and (since := _VALUES_SINCE.get((str(name), member), 0)) > minor:
            yield f"{place}: {member} is there from ManifestVersion 1.{since} on"
        yield from newer_fields(member, minor, place)


def _members(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)
