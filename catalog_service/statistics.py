"""Statistics of a tenant: upload_service counts the downloads, the catalog knows the versions."""

import asyncio
import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from io import StringIO

from catalog_service.outgoing.upload_service import UploadService
from catalog_service.store import MongoCatalogStore
from common.auth.internal_tokens import Caller
from common.errors import Problem
from common.telemetry import log

MOST_DOWNLOADED = 5  # packages of a summary
CSV_HEADER = ("package_id", "version", "uid", "day", "downloads")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # A spreadsheet runs a cell that begins with one of these.


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


@dataclass(frozen=True)
class Statistics:
    """Joins the versions of a tenant with their downloads."""

    installers: UploadService
    store: MongoCatalogStore

    async def downloads(self, caller: Caller, days: int) -> Sequence[VersionDownloads]:
        """Return the versions that were downloaded in the last days, the most downloaded first. Raises Unavailable."""
        counts = await self.installers.download_counts(caller, days)
        names = await self.store.versions.names_of(caller.tenant_id, list(counts)) if counts else ()
        versions = [VersionDownloads(name.package_id, name.version, name.uid, counts[name.uid]) for name in names]
        return sorted(versions, key=lambda each: (-each.downloads, each.package_id, each.version, each.uid))

    async def downloads_of(self, caller: Caller, version_uids: Sequence[str], days: int) -> Mapping[str, int] | None:
        """Return the downloads of these versions in the last days; None if upload_service does not say."""
        try:
            counts = await self.installers.download_counts(caller, days, version_uids) if version_uids else {}
        except Problem as problem:
            log.warning("downloads_unknown", tenant_id=caller.tenant_id, problem=problem.code)
            return None
        return {uid: sum(counts.get(uid, {}).values()) for uid in version_uids}

    async def summary(self, caller: Caller, days: int) -> CatalogSummary:
        """Return the numbers of the catalog and its downloads in the last days. Raises Unavailable."""
        (packages, versions), (by_day, by_version) = await asyncio.gather(
            self.store.size(caller.tenant_id), self.installers.download_totals(caller, days)
        )
        by_package = Counter[str]()
        for name in await self.store.versions.names_of(caller.tenant_id, list(by_version)) if by_version else ():
            by_package[name.package_id] += by_version[name.uid]
        return CatalogSummary(packages, versions, by_day, by_package.most_common(MOST_DOWNLOADED))


def csv_of(versions: Sequence[VersionDownloads]) -> str:
    """One row per version and day. Spreadsheets take each cell for text."""
    text = StringIO()
    rows = csv.writer(text)
    rows.writerow(CSV_HEADER)
    for version in versions:
        texts = (version.package_id, version.version, version.uid)
        cells = [f"'{cell}" if cell.startswith(_FORMULA_STARTS) else cell for cell in texts]
        rows.writerows([*cells, day, downloads] for day, downloads in version.days.items())
    return text.getvalue()
