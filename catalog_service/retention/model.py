"""A version as retention sees it, and the result of a plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from catalog_service.model.stages import ReleaseStatus, Stage
from catalog_service.model.versions import PackageDependency
from catalog_service.releases.policy import RetentionRule

HIDDEN_PERIOD = timedelta(days=7)  # from the first step of a deletion to the second


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """The facts of a version that decide whether it stays.

    `fence` changes with each change of the release; None is none yet. `retired_at` is the time of the first step.
    """

    uid: str
    package_id: str
    version: str
    channel: str
    architecture: str
    size: int = 0
    published_at: datetime | None = None
    is_external: bool = False
    dependencies: tuple[PackageDependency, ...] = ()
    stage: Stage | None = None
    is_pinned: bool = False
    fence: int | None = None
    retired_at: datetime | None = None

    @property
    def is_retired(self) -> bool:
        return self.stage is not None and self.stage.status is ReleaseStatus.RETIRED

    @property
    def deleted_at(self) -> datetime | None:
        """The earliest time of the second step; None for a version that is not retired."""
        return self.retired_at + HIDDEN_PERIOD if self.is_retired and self.retired_at else None


Expired = tuple[StoredVersion, RetentionRule]  # a version that goes, and the rule that does not keep it


@dataclass(frozen=True)
class Preview:
    """The steps of a run on this day at a revision of the catalog: "" while the catalog is being changed.

    `expired` are retired; `retired` are deleted when their time has come. `resumed` are retired, and nothing deletes
    them any more.
    """

    revision: str
    expired: Sequence[Expired]
    retired: Sequence[Expired]
    resumed: Sequence[StoredVersion]


def reason_of(rule: RetentionRule) -> str:
    """The sentence that says why a version goes, in plain English."""
    reasons = []
    if rule.keep_versions is not None:
        last = "the last version" if rule.keep_versions == 1 else f"one of the last {rule.keep_versions} versions"
        reasons.append(f"It is not {last} of its channel and architecture.")
    if rule.published_days is not None:
        reasons.append(f"It was published more than {_days(rule.published_days)} ago.")
    if rule.downloaded_days is not None:
        reasons.append(f"Nobody downloaded it in the last {_days(rule.downloaded_days)}.")
    return " ".join(reasons)


def _days(number: int) -> str:
    return "1 day" if number == 1 else f"{number} days"
