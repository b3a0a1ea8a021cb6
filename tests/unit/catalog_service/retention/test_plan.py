"""The plan of retention: which versions go, and which never do."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_service.model.installers import Downloads
from catalog_service.model.releases import ReleaseStatus, Stage, is_offered
from catalog_service.model.versions import PackageDependency, VersionOrder
from catalog_service.releases.gates import Policy, RetentionRule
from catalog_service.retention.plan import StoredVersion, plan, reason_of

TODAY = datetime(2026, 11, 23, tzinfo=UTC)
RINGS = ("pilot", "broad", "everyone")
LONG_COUNTED = date(2025, 1, 1)
KEEP_ONE = {"keep_versions": 1}


def days_ago(days: float) -> datetime:
    return TODAY - timedelta(days=days)


def make_version(version: str, **fields: Any) -> StoredVersion:
    """A version of Acme.App, published 100 days ago. Its uid is its version."""
    defaults = {"uid": version, "package_id": "Acme.App", "channel": "stable", "architecture": "x64"}
    return StoredVersion(**{"version": version, "published_at": days_ago(100), **defaults, **fields})


def make_policy(*rules: dict[str, Any], rings: tuple[str, ...] = ()) -> Policy:
    return Policy(rings=rings, retention=tuple(RetentionRule(**rule) for rule in rules))


def expired(policy: Policy, *versions: StoredVersion, downloads: Downloads | None = None) -> list[str]:
    """The uids of the versions that go."""
    return [version.uid for version, _ in plan(policy, versions, downloads or Downloads(), TODAY)]


@pytest.mark.parametrize(
    ("rule", "versions", "gone"),
    [
        (KEEP_ONE, ["1.9", "1.10", "1.2"], ["1.9", "1.2"]),
        ({"keep_versions": 2}, ["1.9", "1.10", "1.2"], ["1.2"]),
        ({"keep_versions": 3}, ["1.9", "1.10", "1.2"], []),
        ({"keep_versions": 2}, ["1.0", "1.0-beta", "0.9"], ["0.9"]),
    ],
    ids=["the last one", "the last two", "all", "a prerelease is older"],
)
def test_the_last_versions_in_wingets_order_stay(rule: dict[str, Any], versions: list[str], gone: list[str]) -> None:
    assert expired(make_policy(rule), *map(make_version, versions)) == gone


def test_several_installers_of_one_version_count_once() -> None:
    versions = [make_version(version, uid=uid) for uid, version in [("a", "3"), ("b", "3.0"), ("c", "2"), ("d", "1")]]
    assert expired(make_policy({"keep_versions": 2}), *versions) == ["d"]


def test_a_version_in_no_ring_stays_after_the_rings_were_removed() -> None:
    version = make_version("1", stage=Stage(("pilot",)))
    assert expired(make_policy({"downloaded_days": 1}), version, downloads=Downloads(LONG_COUNTED)) == []


@pytest.mark.parametrize("field", ["channel", "architecture", "package_id"])
def test_each_channel_architecture_and_package_counts_for_itself(field: str) -> None:
    others = [make_version("0.2", uid="other new", **{field: "other"}), make_version("0.1", **{field: "other"})]
    assert expired(make_policy(KEEP_ONE), make_version("2"), make_version("1"), *others) == ["1", "0.1"]


@pytest.mark.parametrize(("days", "gone"), [(29, []), (30, []), (30.1, ["1"])])
def test_versions_published_within_the_days_stay(days: float, gone: list[str]) -> None:
    old = make_version("1", published_at=days_ago(days))
    assert expired(make_policy({"published_days": 30}), make_version("2"), old) == gone


def test_a_version_of_the_last_day_stays_under_every_rule() -> None:
    old = make_version("1", published_at=days_ago(0.9))
    assert expired(make_policy(KEEP_ONE), make_version("2"), old) == []


def test_a_version_that_was_published_at_an_unknown_time_stays() -> None:
    assert expired(make_policy(KEEP_ONE), make_version("2"), make_version("1", published_at=None)) == []


@pytest.mark.parametrize(
    ("since", "last_day", "gone"),
    [
        (LONG_COUNTED, None, ["1"]),
        (LONG_COUNTED, days_ago(31).date(), ["1"]),
        (LONG_COUNTED, days_ago(30).date(), []),
        (LONG_COUNTED, TODAY.date(), []),
        (None, None, []),
        (days_ago(30).date(), None, []),
        (days_ago(31).date(), None, ["1"]),
    ],
    ids=["never", "too long ago", "on the first day", "today", "counting is off", "counting is young", "counted"],
)
def test_versions_that_may_be_downloaded_within_the_days_stay(
    since: date | None, last_day: date | None, gone: list[str]
) -> None:
    downloads = Downloads(since, {"1": last_day} if last_day else {})
    policy = make_policy({"downloaded_days": 30})
    assert expired(policy, make_version("2"), make_version("1"), downloads=downloads) == gone


def test_nobody_knows_the_downloads_of_an_external_installer() -> None:
    versions = make_version("2"), make_version("1", is_external=True)
    assert expired(make_policy({"downloaded_days": 30}), *versions, downloads=Downloads(LONG_COUNTED)) == []


def test_a_version_stays_if_one_condition_keeps_it() -> None:
    policy = make_policy({"keep_versions": 1, "published_days": 30, "downloaded_days": 30})
    versions = [
        make_version("4"),
        make_version("3", published_at=days_ago(5)),
        make_version("2"),
        make_version("1"),
    ]
    assert expired(policy, *versions, downloads=Downloads(LONG_COUNTED, {"2": TODAY.date()})) == ["1"]


@pytest.mark.parametrize(
    ("rules", "gone"),
    [
        ([{"packages": "Acme.*", "keep_versions": 2}, KEEP_ONE], []),
        ([{"packages": "Other.*", "keep_versions": 2}, KEEP_ONE], ["1"]),
        ([{"packages": "Acme.App"}, KEEP_ONE], []),
        ([{"packages": "Other.*", "keep_versions": 1}], []),
        ([], []),
    ],
    ids=["the first matches", "the second matches", "no condition", "none matches", "none"],
)
def test_the_first_rule_that_matches_a_package_counts(rules: list[dict[str, Any]], gone: list[str]) -> None:
    assert expired(make_policy(*rules), make_version("2"), make_version("1")) == gone


@pytest.mark.parametrize(
    ("stage", "gone"),
    [
        (None, ["2"]),
        (Stage(("*",)), ["2"]),
        (Stage(RINGS), ["2"]),
        (Stage(("*",), ReleaseStatus.RETIRED), ["2"]),
        (Stage(), []),
        (Stage(("pilot", "broad")), []),
        (Stage(("*",), ReleaseStatus.PAUSED), []),
        (Stage(("*",), ReleaseStatus.HELD), []),
        (Stage((), ReleaseStatus.ROLLED_BACK), []),
    ],
    ids=["none", "complete", "in all", "retired", "waiting", "on its way", "paused", "held", "rolled back"],
)
def test_a_version_on_its_way_or_stopped_stays(stage: Stage | None, gone: list[str]) -> None:
    policy = make_policy(KEEP_ONE, rings=RINGS)
    assert expired(policy, make_version("3"), make_version("2", stage=stage)) == gone


def test_the_newest_that_a_ring_is_offered_stays() -> None:
    versions = [
        make_version("5", stage=Stage(("*",), ReleaseStatus.HELD)),
        make_version("4", stage=Stage()),
        make_version("3", stage=Stage(("pilot",))),
        make_version("2", stage=Stage(("*",))),
        make_version("1", stage=Stage(("*",))),
    ]
    assert expired(make_policy(KEEP_ONE, rings=RINGS), *versions) == ["1"]


def test_withdrawn_versions_do_not_count_among_the_last() -> None:
    held = make_version("4", stage=Stage(("*",), ReleaseStatus.HELD))
    versions = held, make_version("3"), make_version("2"), make_version("1")
    assert expired(make_policy({"keep_versions": 2}), *versions) == ["1"]


@pytest.mark.parametrize("stage", [Stage(), Stage(("removed ring",))], ids=["no ring", "a removed ring"])
def test_versions_that_no_ring_is_offered_do_not_count_among_the_last(stage: Stage) -> None:
    waiting = [make_version(version, stage=stage) for version in ("6", "5", "4")]
    offered = [make_version("3"), make_version("2"), make_version("1")]
    assert expired(make_policy({"keep_versions": 2}, rings=RINGS), *waiting, *offered) == ["1"]


def test_a_pinned_version_stays() -> None:
    assert expired(make_policy(KEEP_ONE), make_version("2"), make_version("1", is_pinned=True)) == []


def test_the_dependencies_of_kept_versions_stay() -> None:
    runtimes = [make_version(f"{n}.0", package_id="Acme.Runtime", uid=f"runtime {n}") for n in (4, 3, 2, 1)]
    needs = {n: (PackageDependency("acme.runtime", f"{n}"),) for n in (1, 2, 3)}
    kept, old = make_version("2", dependencies=needs[3]), make_version("1", dependencies=needs[1])
    # A kept dependency has dependencies of its own.
    runtimes[1] = replace(runtimes[1], dependencies=needs[2])
    assert expired(make_policy(KEEP_ONE), kept, old, *runtimes) == ["1", "runtime 1"]


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (KEEP_ONE, "Newer versions of its channel and architecture: at least 1."),
        (
            {"published_days": 1, "downloaded_days": 9},
            "Days since its publication: more than 1. Days without a download: at least 9.",
        ),
    ],
)
def test_the_reason_names_each_condition(rule: dict[str, Any], reason: str) -> None:
    assert reason_of(RetentionRule(**rule)).text == reason


stages = st.none() | st.builds(
    Stage,
    st.sampled_from([(), ("pilot",), ("pilot", "broad"), ("*",)]),
    st.sampled_from(list(ReleaseStatus)),
)
dependencies = st.lists(
    st.builds(PackageDependency, st.sampled_from(["A", "B"]), st.sampled_from(["", "1", "2", "3.0"])), max_size=2
).map(tuple)
tenants = st.lists(
    st.builds(
        StoredVersion,
        uid=st.uuids().map(str),
        package_id=st.sampled_from(["A", "B"]),
        version=st.sampled_from(["1", "2", "2.0", "3", "4-beta", "4"]),
        channel=st.sampled_from(["stable", "beta"]),
        architecture=st.just("x64"),
        published_at=st.integers(0, 60).map(days_ago),
        is_external=st.booleans(),
        dependencies=dependencies,
        stage=stages,
        is_pinned=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda version: version.uid,
)
numbers = st.none() | st.integers(1, 40)
rules = st.builds(
    RetentionRule,
    packages=st.sampled_from(["*", "A"]),
    keep_versions=numbers,
    published_days=numbers,
    downloaded_days=numbers,
)
policies = st.builds(
    Policy, rings=st.sampled_from([(), RINGS]), retention=st.lists(rules, min_size=1, max_size=2).map(tuple)
)


@given(policies, tenants)
def test_no_plan_has_a_protected_version(policy: Policy, versions: list[StoredVersion]) -> None:
    gone = {version.uid for version, _ in plan(policy, versions, Downloads(LONG_COUNTED), TODAY)}
    kept = [version for version in versions if version.uid not in gone]
    for version in versions:
        rivals = [
            other
            for other in versions
            if (other.package_id, other.channel) == (version.package_id, version.channel)
            and VersionOrder(other.version) >= VersionOrder(version.version)
        ]
        newer = [other for other in rivals if VersionOrder(other.version) > VersionOrder(version.version)]
        if version.uid in gone:
            assert newer
            assert not version.is_pinned
            assert version.published_at is not None
            assert version.published_at < days_ago(1)
            for ring in RINGS if policy.rings and not version.is_retired else ():
                offered = [other for other in rivals if is_offered(other.stage, ring, RINGS)]
                assert any(other in newer for other in offered) or not is_offered(version.stage, ring, RINGS)
            names = [(need.package_id, VersionOrder(need.min_version)) for each in kept for need in each.dependencies]
            assert (version.package_id, VersionOrder(version.version)) not in names


@given(policies, tenants)
def test_a_plan_after_a_run_is_the_same_and_has_no_new_version(policy: Policy, versions: list[StoredVersion]) -> None:
    downloads = Downloads(LONG_COUNTED)
    gone = {version.uid for version, _ in plan(policy, versions, downloads, TODAY)}
    after_first_step = [
        replace(version, stage=Stage(version.stage.rings if version.stage else ("*",), ReleaseStatus.RETIRED))
        if version.uid in gone
        else version
        for version in versions
        if version.uid in gone or not version.is_retired  # A run resumes the others.
    ]
    assert {version.uid for version, _ in plan(policy, after_first_step, downloads, TODAY)} == gone
    assert plan(policy, [version for version in versions if version.uid not in gone], downloads, TODAY) == []
