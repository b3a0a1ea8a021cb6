"""Downloads of a version, and the numbers of a catalog."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class StatisticsFormat(StrEnum):
    """The form of the response of `get_statistics`."""

    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True)
class VersionDownloads:
    """The downloads of a version by day, such as `2026-11-22`, the oldest first; days without any are left out."""

    package_id: str
    version: str
    uid: str
    days: Mapping[str, int]

    @property
    def downloads(self) -> int:
        return sum(self.days.values())


@dataclass(frozen=True)
class CatalogSummary:
    """The numbers of packages and versions, the downloads by day, and the most downloaded packages with theirs."""

    packages: int
    versions: int
    days: Mapping[str, int]
    most_downloaded: Sequence[tuple[str, int]]
