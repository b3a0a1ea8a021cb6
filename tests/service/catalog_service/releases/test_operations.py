"""The operations of release control over HTTP."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from tests.support.services.catalog import Catalog
from tests.support.services.releases import RINGS, ReleaseTenant, checks
from tests.support.services.stand_ins import DIGEST

AN_APPROVAL = {"broad": {"approvals": 1}}
A_SCAN = {"pilot": {"scan": True}}
NOT_THERE = Unavailable("The upload service does not answer.")
# Each write of release control, with its fields.
WRITES: list[tuple[str, dict[str, str]]] = [
    ("approve_version", {}),
    ("promote_version", {"ring": "broad"}),
    ("pause_version", {}),
    ("resume_version", {}),
    ("hold_version", {"reason": "no"}),
    ("resume_version", {}),
    ("roll_back_version", {}),
    ("resume_version", {}),
    ("pin_version", {"pinned": "1"}),
]


async def document_of(tenant: ReleaseTenant) -> dict[str, Any]:
    """The only version of the tenant in the database."""
    [document] = await tenant.catalog.database["versions"].find({"tenant_id": tenant.ada.tenant_id}).to_list(None)
    return document


async def test_a_version_without_release_control_is_in_all_rings(tenant: ReleaseTenant) -> None:
    uid = await tenant.publish()

    release = await tenant.release(uid)

    ring = {"ring": "everyone", "offered": True, "entered_at": None, "entered_by": "", "gates": []}
    assert (release["rings"], release["sha256"]) == ([ring], DIGEST)
    assert (release["stage"], release["next_ring"], release["status"]) == ("everyone", "", "active")
    await tenant.set_policy()
    assert await tenant.offered(uid) == [*RINGS]


async def test_a_new_version_enters_a_first_ring_without_gates_at_once(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()

    release = await tenant.release(await tenant.publish())

    assert (release["stage"], release["next_ring"]) == ("pilot", "broad")
    assert [row["offered"] for row in release["rings"]] == [True, False, False]
    assert release["rings"][0]["entered_by"] == ""


async def test_a_promotion_lets_a_version_into_a_ring_and_those_before(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()

    answer = await tenant.done(tenant.bob, "promote_version", uid, ring="everyone")

    assert answer["Message"] == "Version was promoted successfully!"
    assert answer["release"]["stage"] == "everyone"
    assert [row["entered_by"] for row in answer["release"]["rings"]] == ["", "bob", "bob"]
    assert "history" not in answer["release"]
    before = await tenant.release(uid)
    await tenant.done(tenant.bob, "promote_version", uid, ring="pilot")
    assert await tenant.release(uid) == before


@pytest.mark.parametrize(
    ("operation", "data", "field"),
    [
        ("promote_version", {"ring": "nobody"}, "ring"),
        ("promote_version", {}, "ring"),
        ("hold_version", {}, "reason"),
    ],
)
async def test_a_missing_or_unknown_field_is_named(
    tenant: ReleaseTenant, operation: str, data: dict[str, str], field: str
) -> None:
    await tenant.set_policy()
    answer = await tenant.call(tenant.bob, operation, await tenant.publish(), **data)
    assert (answer.status, answer.body["params"]["field"]) == (400, field)


async def test_a_gate_that_waits_refuses_the_promotion(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates=AN_APPROVAL)
    uid = await tenant.publish()

    answer = await tenant.call(tenant.bob, "promote_version", uid, ring="everyone")

    assert (answer.status, answer.body["code"]) == (409, "gate_waiting")
    assert (answer.body["ring"], answer.body["gate"]) == ("broad", "approval")
    assert "approval" in answer.body["detail"]
    assert "'broad'" in answer.body["detail"]
    assert await tenant.stage(uid) == "pilot"


async def test_an_approval_opens_the_gate(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates=AN_APPROVAL)
    uid = await tenant.publish()

    answer = await tenant.done(tenant.bob, "approve_version", uid)

    gate = answer["release"]["rings"][1]["gates"][0]
    assert (gate["state"], gate["by"]) == ("passed", ["bob"])
    assert answer["release"]["stage"] == "pilot"  # Only a promotion, or an age gate, goes on.
    await tenant.done(tenant.bob, "promote_version", uid, ring="broad")


@pytest.mark.parametrize(
    ("publisher", "approver"),
    [
        (("ada", ""), ("ada", "")),
        (("ada", ""), ("token:ci", "ada")),
        (("token:ci", "ada"), ("ada", "")),
    ],
    ids=["in person", "by their token", "what their token published"],
)
async def test_a_publisher_does_not_approve(
    tenant: ReleaseTenant, catalog: Catalog, publisher: tuple[str, str], approver: tuple[str, str]
) -> None:
    await tenant.set_policy(gates=AN_APPROVAL)
    first, second = [replace(tenant.ada, username=name, creator=owner) for name, owner in (publisher, approver)]
    uid = await catalog.add_version(first)
    answer = await tenant.call(second, "approve_version", uid)
    assert (answer.status, answer.body["code"]) == (403, "own_version")
    assert (await tenant.gate(uid, "broad", "approval"))["state"] == "waiting"
    await tenant.done(tenant.bob, "approve_version", uid)


async def test_the_sweeper_keeps_the_publisher(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates=AN_APPROVAL)
    catalog.stubs.refusal = NOT_THERE
    await catalog.post_version(tenant.ada)
    catalog.stubs.refusal = None
    await catalog.age_and_sweep()
    uid = (await document_of(tenant))["uid"]
    assert (await tenant.call(tenant.ada, "approve_version", uid)).body["code"] == "own_version"


async def test_a_user_and_their_token_are_one_approver(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates={"broad": {"approvals": 2}})
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "approve_version", uid)
    answer = await tenant.done(replace(tenant.bob, username="token:x", creator="bob"), "approve_version", uid)
    gate = answer["release"]["rings"][1]["gates"][0]
    assert (gate["state"], gate["by"]) == ("waiting", ["bob"])


async def test_a_version_enters_a_ring_with_an_age_by_itself(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates={"broad": {"age_days": 7}, "everyone": {"age_days": 1, "approvals": 1}})
    uid = await tenant.publish()
    for days, stage in ((6.9, "pilot"), (0.2, "broad"), (2, "broad")):
        await tenant.days_pass(days)
        assert await tenant.stage(uid) == stage, days
    await tenant.done(tenant.bob, "approve_version", uid)
    assert await tenant.stage(uid) == "everyone"


async def test_a_paused_version_stays_and_waits(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates={"broad": {"age_days": 7}})
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "pause_version", uid)
    await tenant.days_pass(8)
    assert await tenant.offered(uid) == ["pilot"]
    answer = await tenant.call(tenant.bob, "promote_version", uid, ring="broad")
    assert (answer.status, answer.body["code"]) == (409, "version_stopped")
    await tenant.done(tenant.bob, "resume_version", uid)
    assert await tenant.stage(uid) == "broad"


@pytest.mark.parametrize("gate", [{"scan": True}, {"approvals": 1}])
async def test_a_paused_version_does_not_enter_the_first_ring(
    tenant: ReleaseTenant, catalog: Catalog, gate: dict[str, int]
) -> None:
    await tenant.set_policy(gates={"pilot": gate})
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "pause_version", uid)
    await tenant.done(tenant.bob, "approve_version", uid)
    catalog.stubs.checks[uid] = checks()
    await tenant.rounds()
    assert await tenant.offered(uid) == []
    await tenant.done(tenant.bob, "resume_version", uid)
    assert await tenant.offered(uid) == ["pilot"]


async def test_a_clock_that_goes_back_opens_no_gate(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates={"broad": {"age_days": 7}})
    uid = await tenant.publish()
    await tenant.days_pass(-400)
    gate = await tenant.gate(uid, "broad", "age")
    assert (gate["state"], gate["reason"]) == ("waiting", "The database's clock went back.")


@pytest.mark.parametrize("rings", ["", "pilot,broad,everyone"])
async def test_a_held_version_is_offered_to_nobody_until_it_is_resumed(tenant: ReleaseTenant, rings: str) -> None:
    await tenant.set_policy(rings)
    uid = await tenant.publish()
    before = await tenant.offered(uid)

    answer = await tenant.done(tenant.bob, "hold_version", uid, reason="It deletes files.")

    assert (answer["release"]["status"], answer["release"]["reason"]) == ("held", "It deletes files.")
    assert (await tenant.offered(uid), await tenant.is_withheld(uid)) == ([], True)
    refused = await tenant.call(tenant.bob, "promote_version", uid, ring=before[0])
    assert (refused.status, refused.body["code"]) == (409, "version_stopped")
    await tenant.done(tenant.bob, "resume_version", uid)
    assert (await tenant.offered(uid), await tenant.is_withheld(uid)) == (before, False)


@pytest.mark.parametrize("again", [True, False])
async def test_a_hold_is_not_answered_before_the_file_is_withheld(
    tenant: ReleaseTenant, catalog: Catalog, again: bool
) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    catalog.stubs.release_refusal = NOT_THERE
    assert (await tenant.call(tenant.bob, "hold_version", uid, reason="no")).status == 500
    assert await tenant.offered(uid) == []
    catalog.stubs.release_refusal = None
    if again:
        await tenant.done(tenant.bob, "hold_version", uid, reason="no")
    else:
        await tenant.rounds(1)
    assert await tenant.is_withheld(uid)


async def test_a_version_that_is_rolled_back_leaves_the_one_before(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    old, new = await tenant.publish("1.0"), await tenant.publish("2.0")
    await tenant.publish("3.0-beta", channel="beta")  # Another channel is not offered instead.
    await tenant.done(tenant.bob, "promote_version", old, ring="broad")

    answer = await tenant.done(tenant.bob, "roll_back_version", new, reason="crashes")

    assert answer["offered"] == {"pilot": "1.0", "broad": "1.0", "everyone": ""}
    assert (answer["release"]["status"], answer["release"]["stage"]) == ("rolled_back", "")


@pytest.mark.parametrize("is_held", [True, False])
async def test_a_version_that_was_rolled_back_begins_again(tenant: ReleaseTenant, is_held: bool) -> None:
    await tenant.set_policy(gates=AN_APPROVAL)
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "approve_version", uid)
    await tenant.done(tenant.bob, "promote_version", uid, ring="everyone")
    await tenant.done(tenant.bob, "roll_back_version", uid)
    assert [ring["gates"] for ring in (await tenant.release(uid))["rings"]] == [[], [], []]
    if is_held:
        await tenant.done(tenant.bob, "hold_version", uid, reason="no")
    assert await tenant.offered(uid) == []
    await tenant.done(tenant.bob, "resume_version", uid)
    assert await tenant.offered(uid) == ["pilot"]


async def test_each_write_may_be_repeated(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    for operation, data in WRITES:
        await tenant.done(tenant.bob, operation, uid, **data)
        first = await tenant.release(uid)
        await tenant.done(tenant.bob, operation, uid, **data)
        assert await tenant.release(uid) == first, operation
    assert first["pinned"] is True
    await tenant.done(tenant.bob, "pin_version", uid, pinned="0")
    assert (await tenant.release(uid))["pinned"] is False


async def test_a_token_for_other_packages_changes_nothing(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    token = replace(tenant.bob, username="token:x", creator="bob", packages=("other.*",))
    for operation, data in WRITES:
        answer = await tenant.call(token, operation, uid, **data)
        assert (answer.status, answer.body["code"]) == (403, "permission_missing"), operation


async def test_each_change_of_a_stage_gives_the_catalog_a_new_revision(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    for operation, data in WRITES[1:-1]:
        before = await catalog.store.revisions.state(tenant.ada.tenant_id, "")
        await tenant.done(tenant.bob, operation, uid, **data)
        after = await catalog.store.revisions.state(tenant.ada.tenant_id, "")
        assert after.since(before.revision) == {"acme.editor"}, operation


async def test_the_history_is_newest_first(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates=AN_APPROVAL)
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "approve_version", uid)
    await tenant.done(tenant.eve, "promote_version", uid, ring="broad")
    history = (await tenant.release(uid))["history"]
    assert [(event["event"], event["by"], event["ring"]) for event in history] == [
        ("entered", "eve", "broad"),
        ("gate_passed", "", "broad"),
        ("approved", "bob", ""),
        ("entered", "", "pilot"),
    ]


async def test_releases_in_flight_are_listed_newest_first(tenant: ReleaseTenant, catalog: Catalog) -> None:
    done = await tenant.publish("0.9")
    await tenant.set_policy()
    uids = [await tenant.publish(version) for version in ("1.0", "2.0", "3.0")]
    await tenant.done(tenant.bob, "promote_version", uids[0], ring="everyone")
    await tenant.done(tenant.bob, "hold_version", uids[1], reason="no")

    page = (await catalog.call(tenant.ada, "GET", "find_releases")).body

    assert ([row["uid"] for row in page["releases"]], page["total"]) == ([uids[2], uids[1]], 2)
    assert "history" not in page["releases"][0]
    everything = (await catalog.call(tenant.ada, "GET", "find_releases", params={"state": "all"})).body
    assert ([row["uid"] for row in everything["releases"]], everything["total"]) == ([*reversed(uids), done], 4)
    assert (await catalog.call(tenant.ada, "GET", "find_releases", params={"state": "x"})).status == 400


async def test_a_page_of_releases_has_its_limit_and_package(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy()
    await catalog.add_package(tenant.ada, "acme.viewer")
    uids = [await tenant.publish(version) for version in ("1.0", "2.0")]
    await catalog.add_version(tenant.ada, "acme.viewer")
    params = {"package_id": "acme.editor", "offset": "1", "limit": "1"}
    page = (await catalog.call(tenant.ada, "GET", "find_releases", params=params)).body
    assert ([row["uid"] for row in page["releases"]], page["total"]) == ([uids[0]], 2)
    for named in (uids[:1], uids, [uids[1], "$gt"]):
        params = {"state": "all", "version_uid": ",".join(named)}
        page = (await catalog.call(tenant.ada, "GET", "find_releases", params=params)).body
        assert {row["uid"] for row in page["releases"]} == set(named) & set(uids)


@pytest.mark.parametrize("found", ["clean", "too_large"])
async def test_a_file_is_withheld_until_its_scan_gate_has_passed(
    tenant: ReleaseTenant, catalog: Catalog, found: str
) -> None:
    await tenant.set_policy(gates={**A_SCAN, **AN_APPROVAL})
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "approve_version", uid)  # before the finding
    for state in ("pending", "infected"):
        catalog.stubs.checks[uid] = checks(state)
        await tenant.rounds()
        assert (await tenant.offered(uid), await tenant.is_withheld(uid)) == ([], True), state
    catalog.stubs.checks[uid] = checks(found)
    await tenant.rounds()
    waits = found == "too_large"
    assert (await tenant.offered(uid), await tenant.is_withheld(uid)) == ([] if waits else ["pilot"], waits)
    await tenant.done(tenant.bob, "approve_version", uid)
    await tenant.rounds()
    assert (await tenant.offered(uid), await tenant.is_withheld(uid)) == (["pilot"], False)


async def test_a_version_begins_only_after_its_file_is_withheld(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates=A_SCAN)
    catalog.stubs.refusal = NOT_THERE
    name = catalog.stubs.add_file()
    assert (await catalog.post_version(tenant.ada, server_filename=name)).status == 500
    assert await catalog.versions(tenant.ada) == []
    catalog.stubs.refusal = None
    assert await tenant.is_withheld(await tenant.publish("1.0", server_filename=name))


async def test_a_file_scanned_before_its_first_ring_is_not_withheld_any_more(
    tenant: ReleaseTenant, catalog: Catalog
) -> None:
    async def scan() -> None:
        [uid] = catalog.stubs.linked_uids
        assert await tenant.is_withheld(uid)
        catalog.stubs.checks[uid] = checks("clean")

    await tenant.set_policy(gates=A_SCAN)
    catalog.stubs.during = scan
    assert not await tenant.is_withheld(await tenant.publish())


async def test_a_new_version_without_a_scan_gate_takes_no_call_to_withhold_it(
    tenant: ReleaseTenant, catalog: Catalog
) -> None:
    await tenant.set_policy()
    catalog.stubs.operations.clear()
    await tenant.publish()
    await tenant.rounds()
    assert "withhold_installers" not in catalog.stubs.operations


async def test_a_file_waits_for_a_scan_gate_that_is_set_later(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates={"pilot": {"approvals": 1}})
    uid = await tenant.publish()
    for has_scan in (False, True, False):
        await tenant.set_policy(gates={"pilot": {"approvals": 1, "scan": has_scan}})
        await tenant.rounds()
        assert await tenant.is_withheld(uid) is has_scan


async def test_no_answer_about_a_file_opens_no_gate(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={**A_SCAN, **AN_APPROVAL})
    uid = await tenant.publish()
    catalog.stubs.release_refusal = NOT_THERE
    await tenant.rounds()
    await tenant.done(tenant.bob, "approve_version", uid)
    assert await tenant.offered(uid) == []
    assert (await tenant.call(tenant.bob, "promote_version", uid, ring="pilot")).status == 500
    catalog.stubs.release_refusal = None
    catalog.stubs.checks[uid] = checks()
    await tenant.rounds()
    assert await tenant.offered(uid) == ["pilot"]


@pytest.mark.parametrize("part", ["scan", "signature", "sha256"])
async def test_an_unreadable_answer_about_a_file_opens_no_gate(
    tenant: ReleaseTenant, catalog: Catalog, part: str
) -> None:
    await tenant.set_policy(gates=A_SCAN)
    uid = await tenant.publish()
    catalog.stubs.checks[uid] = {**checks(), part: ["clean"]}
    await tenant.rounds()
    assert await tenant.offered(uid) == []
    due = (await document_of(tenant))["release"]["due"]
    assert due > datetime.now(UTC)  # It does not keep the loop from other versions.
    catalog.stubs.checks[uid] = checks()
    await tenant.rounds()
    assert await tenant.offered(uid) == ["pilot"]


async def test_an_infected_file_in_no_ring_waits_for_another_verdict(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates=A_SCAN)
    uid = await tenant.publish()
    catalog.stubs.infected, catalog.stubs.checks[uid] = [(tenant.ada.tenant_id, uid)], checks("infected")
    await tenant.rounds()
    await catalog.releases.hold_infected()
    assert (await tenant.gate(uid, "pilot", "scan"))["state"] == "failed"
    assert (await tenant.release(uid))["status"] == "active"
    catalog.stubs.checks[uid] = checks()
    await tenant.rounds()
    assert await tenant.offered(uid) == ["pilot"]


async def test_an_infected_file_is_held_before_a_ring_that_does_not_ask_for_its_scan(
    tenant: ReleaseTenant, catalog: Catalog
) -> None:
    await tenant.set_policy(gates={"pilot": {"approvals": 1}, "everyone": {"scan": True}})
    uid = await tenant.publish()
    catalog.stubs.infected, catalog.stubs.checks[uid] = [(tenant.ada.tenant_id, uid)], checks("infected")
    await catalog.releases.hold_infected()
    await tenant.done(tenant.bob, "approve_version", uid)
    await tenant.rounds()
    assert ((await tenant.release(uid))["status"], await tenant.offered(uid)) == ("held", [])


@pytest.mark.parametrize("gates", [None, {}, A_SCAN], ids=["no rings", "no gate", "gate"])
async def test_a_file_that_turns_infected_is_held(
    tenant: ReleaseTenant, catalog: Catalog, gates: dict[str, Any] | None
) -> None:
    if gates is not None:
        await tenant.set_policy(gates=gates)
    uid = await tenant.publish()
    catalog.stubs.checks[uid] = checks()
    await tenant.rounds()
    own = tenant.ada.tenant_id
    catalog.stubs.infected, catalog.stubs.checks[uid] = [(own, str(uuid4())), (own, uid)], checks("infected")

    await catalog.releases.hold_infected()

    release = await tenant.release(uid)
    assert (release["status"], release["reason"]) == ("held", "The scanner calls the file infected.")
    assert (release["codes"], release["history"][0]["codes"]) == (["scan_infected"], ["scan_infected"])
    assert await tenant.is_withheld(uid)
    answer = await tenant.call(tenant.bob, "resume_version", uid)
    assert (answer.status, answer.body["code"]) == (409, "version_infected")


async def test_a_pin_does_not_bring_back_an_infected_version(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    key = {"tenant_id": tenant.ada.tenant_id, "uid": uid}
    await catalog.database["versions"].update_one(key, {"$set": {"stage.status": "retired"}})
    catalog.stubs.checks[uid] = checks("infected")
    answer = await tenant.call(tenant.bob, "pin_version", uid, pinned="1")
    assert (answer.status, answer.body["code"]) == (409, "version_infected")
    assert await tenant.offered(uid) == []


async def test_automatic_changes_are_audited_once(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates=A_SCAN)
    uid = await tenant.publish()
    catalog.stubs.checks[uid] = checks()
    await tenant.rounds(5)
    target = {"package_id": "acme.editor", "version": "1.0", "uid": uid, "ring": "pilot"}
    assert tenant.audited(uid) == [
        ("check_gate", {**target, "step": "gate_passed", "reason": "The scanner calls the file clean."}),
        ("promote_version", {**target, "step": "entered"}),
    ]
    release = (await document_of(tenant))["release"]
    assert (release["unaudited"], release["due"]) == ([], None)


async def test_an_audit_log_that_does_not_answer_is_asked_again(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    catalog.stubs.release_refusal = NOT_THERE
    await tenant.rounds()
    assert tenant.audited(uid) == []
    catalog.stubs.release_refusal = None
    await tenant.rounds()
    assert len(tenant.audited(uid)) == 1


async def test_versions_that_wait_are_counted_by_gate(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await catalog.database["versions"].delete_many({"tenant_id": {"$ne": tenant.ada.tenant_id}})
    await tenant.set_policy(gates={**A_SCAN, **AN_APPROVAL})
    first, second = await tenant.publish("1.0"), await tenant.publish("2.0")
    catalog.stubs.checks[second] = checks()
    await tenant.rounds()
    assert await catalog.store.releases.waiting() == {"scan": 1, "approval": 1}
    await tenant.done(tenant.bob, "hold_version", first, reason="no")
    assert await catalog.store.releases.waiting() == {"approval": 1}


async def test_a_deleted_version_has_no_release(tenant: ReleaseTenant, catalog: Catalog, caller: Caller) -> None:
    await tenant.set_policy(gates=A_SCAN)
    uid = await tenant.publish()
    await tenant.delete_versions(uid)
    await tenant.rounds()
    assert (await catalog.call(caller, "GET", "get_release", uid)).status == 404
    assert (await tenant.call(tenant.bob, "hold_version", uid, reason="no")).status == 404
