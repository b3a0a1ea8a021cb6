"""Which contract an asker speaks: answers leave out what theirs does not know."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from catalog_service.model.enumerations import FileType
from catalog_service.winget.search.index_segment import Record
from common.errors import InvalidRequest

_VERSION = re.compile(r"1(?:\.([0-9]{1,4}))?(?:\.[0-9]{1,4}){0,2}")

# Members of answers, by the contract that brought them: 1.1, 1.4 and so on. The others were there from the beginning.
_SINCE = {
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
LATEST_OF_HITS = 4  # From here on a contract knows all that a search tells of a version.


@dataclass(frozen=True)
class Contract:
    """A contract 1.x."""

    minor: int

    @classmethod
    def parse(cls, header: str | None) -> "Contract":
        """What a `Version` header names; the first contract without one. Raises InvalidRequest."""
        found = _VERSION.fullmatch(header or "1.0")
        if found is None:
            raise InvalidRequest("Version: must be a contract from 1.0 on, such as 1.10.0.")
        return cls(int(found[1] or 0))

    def supports_all(self, record: Record) -> bool:
        """Whether it knows all that a search tells of a package."""
        return self.minor >= max(LATEST_OF_HITS, *record.since)

    def hit(self, record: Record) -> bytes:
        """What a search tells of a package, in JSON: made anew where not all of it is known, else as it is kept."""
        if self.supports_all(record):
            return record.hit
        hit = orjson.loads(record.hit)
        versions = zip(hit["Versions"], record.since, strict=True)
        hit["Versions"] = [self.supported(version) for version, minor in versions if self.minor >= minor]
        return orjson.dumps(hit)

    def supported(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """Of an object what the contract knows, and nothing that is empty then."""
        known = {
            name: self._known(value)
            for name, value in members.items()
            if self.minor >= _SINCE.get(name, 0) and self._knows(name, value)
        }
        return {name: value for name, value in known.items() if value not in ([], {})}

    def _known(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self.supported(value)
        if isinstance(value, list | tuple):
            return [self._known(item) for item in value if self._knows_all_of(item)]
        return value

    def _knows_all_of(self, item: Any) -> bool:
        """Whether no value is unknown of an object that says nothing without it."""
        return not isinstance(item, Mapping) or all(self._knows(name, value) for name, value in item.items())

    def _knows(self, name: str, value: Any) -> bool:
        return not isinstance(value, str) or self.minor >= _VALUES_SINCE.get((name, value), 0)


LATEST = Contract(28)


def since_contract(*types: FileType | None) -> int:
    """From which contract on, 1.x, installers of these types are known."""
    return max(_TYPES_SINCE.get(kind, 0) for kind in types if kind)
