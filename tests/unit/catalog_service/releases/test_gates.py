"""The gates before a ring, and the steps of a version: pure functions. Times are days after the publication."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from catalog_service.model.installers import FileChecks, Scan, Signature
from catalog_service.model.releases import (
    Approval,
    Gate,
    GateState,
    GateStatus,
    Reason,
    Release,
    ReleaseStatus,
    RingEntry,
    Stage,
    VersionRelease,
)
from catalog_service.releases.gates import FAILED_SIGNATURES, Facts, Policy, evaluate
from catalog_service.releases.transitions import advance, delete, resume, retire, roll_back
from tests.support.tables import each

PASSED, WAITING, FAILED = GateStatus
PUBLISHED = datetime(2026, 1, 2, tzinfo=UTC)
SHA256, OTHER_SHA256 = "ab" * 32, "cd" * 32


def day(number: float) -> datetime:
    return PUBLISHED + timedelta(days=number)


def make_release(
    now: float = 0,
    rings: Sequence[str] = (),
    status: str = "active",
    *,
    entered: dict[str, float] | None = None,
    approvals: Sequence[tuple[str, float]] = (),
    **fields: Any,
) -> VersionRelease:
    """A version of acme.editor that ada published, with approvals of its file (person and day)."""
    record = Release(
        publisher="ada",
        fence=1,
        entered=tuple(RingEntry(ring, day(at)) for ring, at in (entered or {}).items()),
        approvals=tuple(Approval(by, SHA256, day(at)) for by, at in approvals),
    )
    version = VersionRelease(
        tenant_id="acme",
        uid="7d0c5a3e-2b1f-4f68-9c1d-5e8a4b3c2d1f",
        package_id="acme.editor",
        version="1.0",
        channel="stable",
        architecture="x64",
        server_filename="a.msi",
        sha256=SHA256,
        published_by="token:ci",
        published_at=PUBLISHED,
        now=day(now),
        stage=Stage(tuple(rings), ReleaseStatus(status)),
        release=record,
    )
    return replace(version, **fields)


def make_policy(gates: dict[str, Any], rings: Sequence[str] = ("pilot", "everyone")) -> Policy:
    return Policy.model_validate({"rings": list(rings), "gates": gates})


def make_checks(
    scan: str = "", signature: str = "", signer: str = "CN=Acme", at: float | None = 0, sha256: str = SHA256
) -> FileChecks:
    """The checks of a file; the findings were made on a day."""
    when = None if at is None else day(at)
    return FileChecks(sha256, Scan(scan, "", when), Signature(signature, signer, "", when))


def state_of(
    gates: dict[str, Any],
    version: VersionRelease | None = None,
    checks: FileChecks | None = None,
    previous_signer: str | None = "",
    ring: str = "pilot",
) -> GateState:
    """The state of the only gate before a ring."""
    facts = Facts(version or make_release(), checks, previous_signer)
    (state,) = [state for state in evaluate(make_policy({ring: gates}), facts) if state.ring == ring]
    return state


@each(
    ("needed", "approvals", "expected"),
    [
        (1, [], WAITING),
        (1, [("bob", 0)], PASSED),
        (1, [("ada", 0)], WAITING),  # the publisher
        (1, [("", 0)], WAITING),
        (2, [("bob", 0)], WAITING),
        (2, [("bob", 0), ("bob", 1)], WAITING),
        (2, [("bob", 0), ("ada", 0)], WAITING),
        (2, [("bob", 0), ("eve", 0)], PASSED),
    ],
)
def test_approval_counts_different_people_but_not_the_publisher(
    needed: int, approvals: list[tuple[str, float]], expected: GateStatus
) -> None:
    state = state_of({"approvals": needed}, make_release(approvals=approvals))
    assert state.state is expected
    assert set(state.by) <= {"bob", "eve"}


def test_an_approval_of_another_file_does_not_count() -> None:
    version = make_release()
    record = replace(version.release, approvals=(Approval("bob", OTHER_SHA256, day(0)),))
    assert state_of({"approvals": 1}, replace(version, release=record)).state is WAITING


def test_the_name_counts_if_no_publisher_is_recorded() -> None:
    version = make_release(approvals=[("bob", 0)], published_by="bob")
    version = replace(version, release=replace(version.release, publisher=""))
    assert state_of({"approvals": 1}, version).state is WAITING


@each(
    ("now", "status", "expected"),
    [
        (6.99, "active", WAITING),
        (7, "active", PASSED),
        (400, "active", PASSED),
        (400, "paused", WAITING),
        (-1, "active", WAITING),  # The clock went back.
        (-400, "active", WAITING),
    ],
)
def test_the_first_ring_counts_days_since_the_publication(now: float, status: str, expected: GateStatus) -> None:
    state = state_of({"age_days": 7}, make_release(now, status=status))
    assert (state.state, state.until) == (expected, day(7))


@each(
    ("now", "entered", "expected"),
    [
        (9.9, {"pilot": 3}, WAITING),
        (10, {"pilot": 3}, PASSED),
        (10, {"pilot": 11}, WAITING),
        (10, {}, PASSED),  # It entered before entries were recorded: since the publication.
    ],
)
def test_a_later_ring_counts_days_in_the_ring_before(
    now: float, entered: dict[str, float], expected: GateStatus
) -> None:
    version = make_release(now, ["pilot"], entered=entered)
    assert state_of({"age_days": 7}, version, ring="everyone").state is expected


def test_the_age_waits_until_the_ring_before_is_entered() -> None:
    state = state_of({"age_days": 1}, make_release(400), ring="everyone")
    assert (state.state, state.until) == (WAITING, None)
    assert state.reason == Reason(("ring_before",), {"ring": "pilot"})


@each(
    ("scan", "expected"),
    [
        ("clean", PASSED),
        ("infected", FAILED),
        ("pending", WAITING),
        ("failed", WAITING),
        ("off", WAITING),
        ("", WAITING),
        ("CLEAN", WAITING),
        ("too_large", WAITING),
    ],
)
def test_only_a_clean_verdict_passes_the_scan(scan: str, expected: GateStatus) -> None:
    assert state_of({"scan": True}, checks=make_checks(scan)).state is expected


def test_a_missing_verdict_waits() -> None:
    assert state_of({"scan": True}).state is WAITING


@each("scan", ["clean", "infected", "too_large"])
def test_a_verdict_for_another_file_waits(scan: str) -> None:
    version = make_release(1, approvals=[("bob", 1)])
    assert state_of({"scan": True}, version, make_checks(scan, sha256=OTHER_SHA256)).state is WAITING


@each(
    ("approvals", "at", "expected"),
    [
        ([("bob", 2)], 2, PASSED),
        ([("bob", 3)], 2, PASSED),
        ([("bob", 1)], 2, WAITING),  # It was approved before the finding.
        ([("ada", 3)], 2, WAITING),
        ([("bob", 3)], None, WAITING),  # The time of the finding is not known.
    ],
)
def test_a_file_too_large_for_the_scanner_needs_a_later_approval(
    approvals: list[tuple[str, float]], at: float | None, expected: GateStatus
) -> None:
    version = make_release(9, approvals=approvals)
    assert state_of({"scan": True}, version, make_checks("too_large", at=at)).state is expected


def test_a_large_file_needs_as_many_approvals_as_its_ring() -> None:
    facts = Facts(make_release(approvals=[("bob", 0)]), make_checks("too_large"))
    states = evaluate(make_policy({"pilot": {"scan": True, "approvals": 2}}), facts)
    assert [state.state for state in states] == [WAITING, WAITING]


@each(("approvals", "expected"), [([], WAITING), ([("ada", 0)], WAITING), ([("bob", 0)], PASSED)])
def test_an_external_installer_needs_an_approval(approvals: list[tuple[str, float]], expected: GateStatus) -> None:
    version = make_release(server_filename="", approvals=approvals)
    assert state_of({"scan": True}, version, make_checks("clean")).state is expected


@each(
    ("signature", "expected"),
    [("valid", PASSED), ("pending", WAITING), ("", WAITING), ("VALID", WAITING)]
    + [(state, FAILED) for state in sorted(FAILED_SIGNATURES)],
)
def test_only_a_valid_signature_passes(signature: str, expected: GateStatus) -> None:
    assert state_of({"signature": "signed"}, checks=make_checks(signature=signature)).state is expected


@each(
    ("publisher", "signer", "expected"),
    [
        ("CN=Acme", "CN=Acme", PASSED),
        ("CN = acme", "CN=Acme", PASSED),
        ("CN=Acme, O=Acme Inc", "CN=Acme,O=Acme Inc", PASSED),
        ("CN=Acme", "CN=Acme,O=Acme Inc", FAILED),
        ("CN=Acme,O=Acme Inc", "CN=Acme", FAILED),
        ("CN=Acme", "CN=Acme Evil", FAILED),
        ("CN=Acme", "CN=Evil,OU=CN\\=Acme", FAILED),
        ("CN=Acme", "O=Acme", FAILED),
        ("CN=Acme", "", FAILED),
        ("CN=Acme,O=Acme", "O=Acme,CN=Acme", FAILED),
    ],
)
def test_a_pinned_publisher_must_be_the_whole_signer(publisher: str, signer: str, expected: GateStatus) -> None:
    rule = {"signature": {"publisher": publisher}}
    assert state_of(rule, checks=make_checks(signature="valid", signer=signer)).state is expected


def test_the_first_rule_that_matches_a_package_counts() -> None:
    rules = [{"packages": "acme.*", "publisher": "CN=Acme"}, {"publisher": "CN=Other"}]
    assert state_of({"signature": rules}, checks=make_checks(signature="valid")).state is PASSED
    assert state_of({"signature": rules[::-1]}, checks=make_checks(signature="valid")).state is FAILED


def test_a_package_without_a_rule_has_no_gate() -> None:
    gates = {"pilot": {"signature": [{"packages": "other.*", "publisher": "CN=Acme"}]}}
    assert evaluate(make_policy(gates), Facts(make_release())) == ()


@each(
    ("approvals", "expected"), [([], WAITING), ([("bob", 0)], WAITING), ([("bob", 2)], PASSED), ([("ada", 2)], WAITING)]
)
def test_a_changed_signer_needs_a_later_approval(approvals: list[tuple[str, float]], expected: GateStatus) -> None:
    checks = make_checks(signature="valid", signer="CN=New", at=1)
    version = make_release(3, approvals=approvals)
    assert state_of({"signature": "signed"}, version, checks, "CN=Acme").state is expected


@each("before", ["CN=Acme", None])
def test_a_changed_signer_found_at_an_unknown_time_waits(before: str | None) -> None:
    checks = make_checks(signature="valid", signer="CN=New", at=None)
    assert state_of({"signature": "signed"}, make_release(3, approvals=[("bob", 2)]), checks, before).state is WAITING


def test_the_same_signer_in_another_spelling_needs_no_approval() -> None:
    checks = make_checks(signature="valid", signer="CN=Acme,O=Acme Inc")
    assert state_of({"signature": "signed"}, checks=checks, previous_signer="cn=ACME, o=Acme Inc").state is PASSED


def test_the_signature_of_an_external_installer_fails() -> None:
    version = make_release(server_filename="", approvals=[("bob", 0)])
    assert state_of({"signature": "signed"}, version, make_checks(signature="valid")).state is FAILED


def test_the_signature_of_another_file_waits() -> None:
    assert (
        state_of({"signature": "signed"}, checks=make_checks(signature="valid", sha256=OTHER_SHA256)).state is WAITING
    )


def test_text_of_a_certificate_cannot_break_a_log() -> None:
    state = state_of(
        {"signature": "signed"}, checks=make_checks(signature="valid", signer="CN=A\0\r\n\u202e" + "x" * 999)
    )
    assert state.reason.text.isprintable()
    assert len(state.reason.text) < 600


def test_a_finding_that_people_may_accept_says_so_in_its_codes() -> None:
    state = state_of({"scan": True, "approvals": 0}, checks=make_checks("too_large"))
    assert state.reason == Reason(("scan_too_large", "approvals"), {"count": "0", "needed": "1"})
    assert state.reason.text == "The file is too large for the scanner. 0 of 1 approved."


@each(
    ("reason", "text"),
    [
        (Reason(), ""),
        (Reason.given(""), ""),
        (Reason(("of_a_later_release",)), "of_a_later_release"),
        (Reason.given("{signer} %(x)s"), "{signer} %(x)s"),
        (Reason(("signed_by",), {"signer": "CN={count}"}), "The file is signed by CN={count}."),
    ],
)
def test_a_value_in_a_reason_is_shown_as_it_is(reason: Reason, text: str) -> None:
    assert reason.text == text


def test_a_state_keeps_the_time_of_its_last_change() -> None:
    policy, checks = make_policy({"pilot": {"scan": True}}), make_checks("clean")
    version = make_release(1)
    (first,) = evaluate(policy, Facts(version))
    later = replace(version, now=day(2), release=replace(version.release, gates=(first,)))
    (same,) = evaluate(policy, Facts(later))
    (changed,) = evaluate(policy, Facts(later, checks))
    assert [first.at, same.at, changed.at] == [day(1), day(1), day(2)]


def test_rings_that_are_entered_have_no_gates_any_more() -> None:
    policy = make_policy({"pilot": {"approvals": 1}, "everyone": {"approvals": 1}})
    assert [state.ring for state in evaluate(policy, Facts(make_release(rings=["pilot"])))] == ["everyone"]


@given(
    scan=st.sampled_from(["clean", "infected", "too_large", "failed", "off", "pending", ""]) | st.text(max_size=8),
    signature=st.sampled_from(["valid", "pending", *sorted(FAILED_SIGNATURES)]) | st.text(max_size=8),
    sha256=st.sampled_from([SHA256, OTHER_SHA256, ""]),
    known=st.booleans(),
)
def test_no_check_but_the_right_one_passes(scan: str, signature: str, sha256: str, known: bool) -> None:
    checks = make_checks(scan, signature, sha256=sha256) if known else None
    policy = make_policy({"pilot": {"scan": True, "signature": "signed"}})
    states = {state.gate: state.state for state in evaluate(policy, Facts(make_release(), checks))}
    right_file = known and sha256 == SHA256
    assert (states[Gate.SCAN] is PASSED) == (right_file and scan == "clean")
    assert (states[Gate.SIGNATURE] is PASSED) == (right_file and signature == "valid")


def test_a_resumed_version_waits_for_its_scan_again_after_a_roll_back() -> None:
    version = advance(make_policy({"pilot": {"scan": True}}), Facts(make_release(), make_checks("clean")))
    assert (version.rings, version.is_withheld) == (("pilot",), False)
    version = resume(Facts(roll_back(version, "bob", Reason.given("crashes"))), "bob")
    assert (version.rings, version.is_withheld) == ((), True)


def test_only_a_person_pins_a_retired_version_by_resuming_it() -> None:
    retired = retire(make_release(rings=("pilot",)), Reason.given("old"))
    assert (retired.is_withdrawn, retired.is_withheld, retired.release.retired_at) == (True, True, retired.now)
    resumed = {by: resume(Facts(retired), by) for by in ("bob", "")}
    assert {by: version.release.pinned for by, version in resumed.items()} == {"bob": True, "": False}
    assert {version.release.retired_at for version in resumed.values()} == {None}


def test_retention_spares_pinned_versions_and_those_that_are_not_retired() -> None:
    version = make_release(rings=("pilot",))
    pinned = replace(version, release=replace(version.release, pinned=True))
    assert retire(pinned, Reason.given("old")) is pinned
    assert delete(version) is version
    events = delete(retire(version, Reason.given("old"))).release.unaudited
    assert [(entry["operation"], entry["status"]) for entry in events] == [("retention", 200), ("retention", 200)]
