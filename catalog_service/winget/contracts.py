"""Names and contracts of winget's protocol, and the versions that its clients can install.

Responses leave out everything that a client's contract does not support.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from catalog_service.catalog.reader import WholeEntry
from catalog_service.model.enumerations import FileType
from catalog_service.model.manifest_fields import pascal
from catalog_service.model.versions import PackageVersion, newest_first
from catalog_service.model.winget_rules import STABLE, winget_refusals
from common.errors import InvalidRequest

_VERSION = re.compile(r"1(?:\.([0-9]{1,4}))?(?:\.[0-9]{1,4}){0,2}")

# The members of responses by the contract that added them: 1.1, 1.4 and so on. The others exist since 1.0.
MEMBERS_SINCE = {
    name: minor
    for minor, names in {
        1: (
            "Agreements ReleaseNotes ReleaseNotesUrl AppsAndFeaturesEntries ElevationRequirement ExpectedReturnCodes "
            "InstallerAbortsTerminal InstallLocationRequired Markets ReleaseDate RequireExplicitUpgrade "
            "UnsupportedOSArchitectures"
        ),
        4: (
            "AppsAndFeaturesEntryVersions UpgradeCodes DisplayInstallWarnings Documentations InstallationMetadata "
            "InstallationNotes NestedInstallerFiles NestedInstallerType PurchaseUrl ReturnResponseUrl "
            "UnsupportedArguments"
        ),
        5: "Icons",
        6: "DownloadCommandProhibited",
        7: "Repair RepairBehavior",
        9: "ArchiveBinariesDependOnPath",
        28: "DesiredStateConfiguration",
    }.items()
    for name in names.split()
}
_VALUES_SINCE = {
    ("UpgradeBehavior", "deny"): 6,
    ("ReturnResponse", "custom"): 4,
    ("ReturnResponse", "invalidParameter"): 4,
    ("ReturnResponse", "packageInUseByApplication"): 4,
    ("ReturnResponse", "systemNotSupported"): 4,
}
_TYPES_SINCE = {FileType.ZIP: 4, FileType.PORTABLE: 4, FileType.FONT: 12}
WITH_NESTED = 4  # archives and portable programs
_winget_name = lru_cache(maxsize=512)(pascal)


@dataclass(frozen=True)
class Contract:
    """A contract 1.x."""

    minor: int

    @classmethod
    def parse(cls, header: str | None) -> "Contract":
        """Return the contract of a `Version` header, without one the first contract. Raises InvalidRequest."""
        match = _VERSION.fullmatch(header or "1.0")
        if match is None:
            raise InvalidRequest("Version: must be a contract from 1.0 on, such as 1.10.0.")
        return cls(int(match[1] or 0))

    def supported(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """Return the supported members of an object, without those that are empty then."""
        supported = {
            name: self._supported(value)
            for name, value in members.items()
            if self.minor >= MEMBERS_SINCE.get(name, 0) and self._supports(name, value)
        }
        return {name: value for name, value in supported.items() if value not in ([], {})}

    def _supported(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self.supported(value)
        if isinstance(value, list | tuple):
            return [self._supported(item) for item in value if self._supports_all(item)]
        return value

    def _supports_all(self, item: Any) -> bool:
        """Whether all values of an object are supported; without one the object has no meaning."""
        return not isinstance(item, Mapping) or all(self._supports(name, value) for name, value in item.items())

    def _supports(self, name: str, value: Any) -> bool:
        return not isinstance(value, str) or self.minor >= _VALUES_SINCE.get((name, value), 0)


LATEST = Contract(28)


def since_contract(*types: FileType | None) -> int:
    """Return the first contract 1.x that supports installers of these types."""
    return max(_TYPES_SINCE.get(kind, 0) for kind in types if kind)


def with_winget_names(value: Any) -> Any:
    """Return the value with the names of the protocol: `minimum_os_version` becomes `MinimumOSVersion`."""
    if isinstance(value, dict):
        return {_winget_name(name): with_winget_names(member) for name, member in value.items()}
    return [with_winget_names(item) for item in value] if isinstance(value, list | tuple) else value


def without_empty(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that are not empty: clients refuse empty ones."""
    return {name: value for name, value in members.items() if value not in ("", [], (), {}, None)}


PACKAGED = frozenset([FileType.MSIX, FileType.APPX])


def installable_versions(entry: WholeEntry) -> Mapping[str, Sequence[PackageVersion]]:
    """Return the installers, one or more, by version string, the newest first.

    An inactive package, or one without a name or publisher, has none.
    """
    package = entry.package
    if not package.active or not package.name.strip() or not package.publisher.strip():
        return {}
    stable = newest_first(version for version in entry.names if version.channel == STABLE)
    refused = winget_refusals(stable)
    by_version: dict[str, list[PackageVersion]] = {}
    for version in stable:
        if version.uid not in refused:
            by_version.setdefault(version.version, []).append(version)
    return by_version
