"""Decides which versions go. It reads no clock and no database, so a preview and a run of one day agree."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from catalog_service.model.installers import Downloads
from catalog_service.model.releases import Reason, ReleaseStatus, Stage, is_offered
from catalog_service.model.versions import PackageDependency, VersionOrder
from catalog_service.releases.gates import Policy, RetentionRule
from common.auth.roles import matches

HIDDEN_PERIOD = timedelta(days=7)  # from the first step of a deletion to the second
SETTLING_DAYS = 1  # A version that was published in these days stays.


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """The facts of a version that decide whether it stays.

    `fence` changes with each change of the release. `retired_at` is the time of the first step.
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
    fence: int = 0
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


def reason_of(rule: RetentionRule) -> Reason:
    """The reason why a version goes. Its codes are the limits of the rule."""
    conditions = rule.model_dump(exclude={"packages"}, exclude_none=True)
    limits = {name: str(limit) for name, limit in conditions.items()}
    return Reason(tuple(limits), limits)


def plan(policy: Policy, versions: Sequence[StoredVersion], downloads: Downloads, today: datetime) -> list[Expired]:
    """Return the versions of a tenant that its rules do not keep, in the order of `versions`.

    `today` is midnight in UTC. Versions that are retired already count as if they were not, so the plan for them stays
    the same until a rule, a pin, another version or a dependency changes it.
    """
    rings = policy.effective_rings
    orders = {version.uid: VersionOrder(version.version) for version in versions}
    groups: dict[tuple[str, str, str], list[StoredVersion]] = defaultdict(list)
    for version in map(_unretired, versions):
        groups[version.package_id, version.channel, version.architecture].append(version)
    rules: dict[str, RetentionRule] = {}  # of the versions that go
    for (package_id, _, _), group in groups.items():
        rule = _rule_of(policy, package_id)
        if rule is None:
            continue
        kept = _kept_orders(rings, rule, group, orders)
        for version in group:
            if not (
                orders[version.uid] in kept
                or version.is_pinned
                or _is_in_flight(version.stage, rings)
                or _is_recent(rule, version, downloads, today)
            ):
                rules[version.uid] = rule
    _keep_dependencies(versions, rules, orders)
    return [(version, rules[version.uid]) for version in versions if version.uid in rules]


def _unretired(version: StoredVersion) -> StoredVersion:
    if version.stage is None or not version.is_retired:
        return version
    return replace(version, stage=replace(version.stage, status=ReleaseStatus.ACTIVE))


def _rule_of(policy: Policy, package_id: str) -> RetentionRule | None:
    """The first rule that matches a package; None for no rule, or one without a condition: it keeps everything."""
    rule = next((rule for rule in policy.retention if matches((rule.packages,), package_id)), None)
    if rule is None or {rule.keep_versions, rule.published_days, rule.downloaded_days} == {None}:
        return None
    return rule


def _kept_orders(
    rings: Sequence[str], rule: RetentionRule, group: Iterable[StoredVersion], orders: Mapping[str, VersionOrder]
) -> set[VersionOrder]:
    """The newest version of all, the newest that each ring is offered, and the last ones of the rule.

    Several installers of one version count once. Only versions that a ring is offered count among the last ones.
    """
    newest_first = sorted(group, key=lambda version: orders[version.uid], reverse=True)
    kept = [orders[newest_first[0].uid]]
    offered: set[str] = set()
    for ring in rings:
        of_ring = [version.uid for version in newest_first if is_offered(version.stage, ring, rings)]
        kept += [orders[uid] for uid in of_ring[:1]]
        offered.update(of_ring)
    last = dict.fromkeys(orders[version.uid] for version in newest_first if version.uid in offered)
    return {*kept, *[*last][: rule.keep_versions or 0]}


def _is_in_flight(stage: Stage | None, rings: Sequence[str]) -> bool:
    """Whether a version is not yet in the last ring, or somebody has stopped it."""
    return stage is not None and (stage.status is not ReleaseStatus.ACTIVE or stage.level(rings) < len(rings) - 1)


def _is_recent(rule: RetentionRule, version: StoredVersion, downloads: Downloads, today: datetime) -> bool:
    """Whether the publication or a download keeps a version. An unknown time keeps it, too."""
    published_days = max(SETTLING_DAYS, rule.published_days or 0)
    if version.published_at is None or version.published_at >= today - timedelta(days=published_days):
        return True
    if rule.downloaded_days is None:
        return False
    # Clients download external installers elsewhere, so nobody knows when.
    first_day = (today - timedelta(days=rule.downloaded_days)).date()
    return version.is_external or downloads.may_be_downloaded(version.uid, first_day)


def _keep_dependencies(
    versions: Iterable[StoredVersion], rules: dict[str, RetentionRule], orders: Mapping[str, VersionOrder]
) -> None:
    """Take the versions out of `rules` that a kept version names, and those that they name in turn."""
    expired_by_name: dict[tuple[str, VersionOrder], list[StoredVersion]] = defaultdict(list)
    kept = []
    for version in versions:
        if version.uid in rules:
            expired_by_name[version.package_id.casefold(), orders[version.uid]].append(version)
        else:
            kept.append(version)
    while kept:
        for dependency in kept.pop().dependencies:
            name = dependency.package_id.casefold(), VersionOrder(dependency.min_version)
            for version in expired_by_name.pop(name, ()):
                del rules[version.uid]
                kept.append(version)
