"""Which fields and values each version of manifests has: clients pass over later ones, so they are mistakes in it."""

from collections.abc import Iterator, Mapping
from typing import Any

NEWEST = 28  # of the versions 1.x

# The catalog's contracts with winget (`catalog_service.winget.contracts`) have a table of their own, for theirs is
# another history: there is no contract 1.2, so what manifests have from 1.2 on is in answers from 1.4 on, answers have
# members that no manifest has, and no Authentication.
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


def too_new(value: Any, minor: int, where: str = "") -> Iterator[str]:
    """What a manifest of the version 1.`minor` does not have yet, and from which version on."""
    for name, member in _members(value):
        place = f"{where}[{name}]" if isinstance(name, int) else f"{where}.{name}".strip(".")
        named = str(name)
        kept = member if isinstance(member, str) else ""
        for since, what in ((_SINCE.get(named, 0), place), (_VALUES_SINCE.get((named, kept), 0), f"{place}: {kept}")):
            if since > minor:
                yield f"{what} is there from ManifestVersion 1.{since} on"
        yield from too_new(member, minor, place)


def _members(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)
