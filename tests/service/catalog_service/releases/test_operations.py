"""The operations of release control over HTTP."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from tests.support.factories import make_caller
from tests.support.services.catalog import EXTERNAL, Catalog
from tests.support.services.releases import RINGS, ReleaseTenant, checks
from tests.support.services.stand_ins import DIGEST

AN_APPROVAL = {"broad": {"approvals": 1}}
NOT_THERE = Unavailable("The upload service does not answer.")


async def test_a_version_without_release_control_is_in_all_rings(tenant: ReleaseTenant) -> None:
    release = await tenant.release(await tenant.publish())

    ring = {"ring": "everyone", "offered": True, "entered_at": None, "entered_by": "", "gates": []}
    assert release["rings"] == [ring]
    assert (release["stage"], release["next_ring"], release["status"]) == ("everyone", "", "active")


async def test_a_document_without_release_control_has_no_stage(tenant: ReleaseTenant, catalog: Catalog) -> None:
    uid = await tenant.publish()

    document = await catalog.database["versions"].find_one({"tenant_id": tenant.ada.tenant_id, "uid": uid})

    assert document
    assert "stage" not in document
    assert document["release"] == {"publisher": "ada"}


async def test_a_new_version_enters_a_first_ring_without_gates_at_once(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()

    release = await tenant.release(await tenant.publish())

    assert (release["stage"], release["next_ring"]) == ("pilot", "broad")
    assert [row["offered"] for row in release["rings"]] == [True, False, False]
    assert release["rings"][0]["entered_by"] == ""


async def test_a_version_from_before_the_rings_is_in_all_rings(tenant: ReleaseTenant) -> None:
    uid = await tenant.publish()
    await tenant.set_policy()
    assert await tenant.offered(uid) == [*RINGS]


async def test_a_promotion_lets_a_version_into_the_next_ring(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()

    answer = await tenant.done(tenant.bob, "promote_version", uid, ring="broad")

    assert answer["Message"] == "Version was promoted successfully!"
    assert answer["release"]["stage"] == "broad"
    assert answer["release"]["rings"][1]["entered_by"] == "bob"
    assert "history" not in answer["release"]


async def test_a_promotion_to_a_later_ring_enters_those_before_it(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "promote_version", uid, ring="everyone")
    assert await tenant.offered(uid) == [*RINGS]


async def test_a_promotion_to_an_entered_ring_changes_nothing(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    before = await tenant.release(uid)
    await tenant.done(tenant.bob, "promote_version", uid, ring="pilot")
    assert await tenant.release(uid) == before


async def test_a_promotion_to_an_unknown_ring_is_refused(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    answer = await tenant.call(tenant.bob, "promote_version", await tenant.publish(), ring="nobody")
    assert (answer.status, answer.body["params"]["reason"]) == (400, "no_such_ring")


async def test_a_promotion_names_its_ring(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    answer = await tenant.call(tenant.bob, "promote_version", await tenant.publish())
    assert (answer.status, answer.body["code"], answer.body["params"]["field"]) == (400, "invalid_field", "ring")


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


async def test_the_publisher_does_not_approve(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates=AN_APPROVAL)
    uid = await tenant.publish()
    answer = await tenant.call(tenant.ada, "approve_version", uid)
    assert (answer.status, answer.body["code"]) == (403, "own_version")
    assert (await tenant.gate(uid, "broad", "approval"))["state"] == "waiting"


async def test_a_token_of_the_publisher_does_not_approve(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates=AN_APPROVAL)
    uid = await tenant.publish()
    token = replace(tenant.ada, username="token:ci", creator="ada")
    assert (await tenant.call(token, "approve_version", uid)).body["code"] == "own_version"


async def test_the_owner_of_a_publishing_token_does_not_approve(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates=AN_APPROVAL)
    token = replace(tenant.ada, username="token:ci", creator="eve")
    uid = await catalog.add_version(token)
    assert (await tenant.call(tenant.eve, "approve_version", uid)).body["code"] == "own_version"
    await tenant.done(tenant.ada, "approve_version", uid)


async def test_the_sweeper_keeps_the_publisher(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates=AN_APPROVAL)
    catalog.stubs.refusal = NOT_THERE
    await catalog.post_version(tenant.ada)
    catalog.stubs.refusal = None
    await catalog.age_and_sweep()
    document = await catalog.database["versions"].find_one({"tenant_id": tenant.ada.tenant_id})
    assert document
    assert (await tenant.call(tenant.ada, "approve_version", document["uid"])).body["code"] == "own_version"


async def test_a_user_and_their_token_are_one_approver(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates={"broad": {"approvals": 2}})
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "approve_version", uid)
    answer = await tenant.done(replace(tenant.bob, username="token:x", creator="bob"), "approve_version", uid)
    gate = answer["release"]["rings"][1]["gates"][0]
    assert (gate["state"], gate["by"]) == ("waiting", ["bob"])


async def test_two_approvals_at_once_are_both_counted(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates={"broad": {"approvals": 2}})
    uid = await tenant.publish()
    await asyncio.gather(*(tenant.done(user, "approve_version", uid) for user in (tenant.bob, tenant.eve)))
    assert (await tenant.gate(uid, "broad", "approval"))["state"] == "passed"


async def test_an_approval_of_another_file_does_not_count(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates=AN_APPROVAL)
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "approve_version", uid)
    key = {"tenant_id": tenant.ada.tenant_id, "uid": uid}
    await catalog.database["versions"].update_one(key, {"$set": {"sha256": "cd" * 32}})
    answer = await tenant.call(tenant.bob, "promote_version", uid, ring="broad")
    assert answer.body["code"] == "gate_waiting"


async def test_a_version_enters_a_ring_with_an_age_by_itself(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates={"broad": {"age_days": 7}, "everyone": {"age_days": 1, "approvals": 1}})
    uid = await tenant.publish()
    await tenant.days_pass(6.9)
    assert await tenant.stage(uid) == "pilot"
    await tenant.days_pass(0.2)
    assert await tenant.stage(uid) == "broad"
    await tenant.days_pass(2)
    assert await tenant.stage(uid) == "broad"
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


async def test_a_clock_that_goes_back_opens_no_gate(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates={"broad": {"age_days": 7}})
    uid = await tenant.publish()
    await tenant.days_pass(-400)
    gate = await tenant.gate(uid, "broad", "age")
    assert (gate["state"], gate["reason"]) == ("waiting", "The database's clock went back.")


async def test_a_held_version_is_offered_to_nobody(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()

    answer = await tenant.done(tenant.bob, "hold_version", uid, reason="It deletes files.")

    assert (answer["release"]["status"], answer["release"]["reason"]) == ("held", "It deletes files.")
    assert await tenant.offered(uid) == []
    assert catalog.stubs.withheld[uid][1] is True


async def test_a_resumed_version_is_in_its_rings_again(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "promote_version", uid, ring="broad")
    await tenant.done(tenant.bob, "hold_version", uid, reason="no")
    await tenant.done(tenant.bob, "resume_version", uid)
    assert await tenant.offered(uid) == ["pilot", "broad"]
    assert catalog.stubs.withheld[uid][1] is False


async def test_a_version_without_rings_can_be_held_and_resumed(tenant: ReleaseTenant, catalog: Catalog) -> None:
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "hold_version", uid, reason="no")
    assert await tenant.offered(uid) == []
    await tenant.done(tenant.bob, "resume_version", uid)
    assert await tenant.offered(uid) == ["everyone"]
    assert catalog.stubs.withheld[uid][1] is False


async def test_a_hold_needs_a_reason(tenant: ReleaseTenant) -> None:
    assert (await tenant.call(tenant.bob, "hold_version", await tenant.publish())).status == 400


async def test_a_hold_is_not_answered_before_the_file_is_withheld(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    catalog.stubs.release_refusal = NOT_THERE
    assert (await tenant.call(tenant.bob, "hold_version", uid, reason="no")).status == 500
    assert await tenant.offered(uid) == []
    catalog.stubs.release_refusal = None
    await tenant.rounds(1)
    assert catalog.stubs.withheld[uid][1] is True


async def test_a_repeated_hold_withholds_the_file_then(tenant: ReleaseTenant, catalog: Catalog) -> None:
    uid = await tenant.publish()
    catalog.stubs.release_refusal = NOT_THERE
    assert (await tenant.call(tenant.bob, "hold_version", uid, reason="no")).status == 500
    catalog.stubs.release_refusal = None
    await tenant.done(tenant.bob, "hold_version", uid, reason="no")
    assert catalog.stubs.withheld[uid][1] is True


async def test_a_version_that_is_rolled_back_leaves_the_one_before(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    old, new = await tenant.publish("1.0"), await tenant.publish("2.0")
    await tenant.done(tenant.bob, "promote_version", old, ring="broad")

    answer = await tenant.done(tenant.bob, "roll_back_version", new, reason="crashes")

    assert answer["offered"] == {"pilot": "1.0", "broad": "1.0", "everyone": ""}
    assert (answer["release"]["status"], answer["release"]["stage"]) == ("rolled_back", "")


async def test_another_channel_is_not_offered_instead(tenant: ReleaseTenant) -> None:
    await tenant.publish("3.0-beta", channel="beta")
    answer = await tenant.done(tenant.bob, "roll_back_version", await tenant.publish("2.0"))
    assert answer["offered"] == {"everyone": ""}


async def test_a_version_that_was_rolled_back_begins_again(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates=AN_APPROVAL)
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "approve_version", uid)
    await tenant.done(tenant.bob, "promote_version", uid, ring="everyone")
    await tenant.done(tenant.bob, "roll_back_version", uid)
    assert await tenant.offered(uid) == []
    await tenant.done(tenant.bob, "resume_version", uid)
    assert await tenant.offered(uid) == ["pilot"]


async def test_stops_and_resumes_may_be_repeated(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    for operation, data in (
        ("pause_version", {}),
        ("resume_version", {}),
        ("hold_version", {"reason": "no"}),
        ("resume_version", {}),
        ("roll_back_version", {}),
        ("resume_version", {}),
        ("approve_version", {}),
        ("pin_version", {"pinned": "1"}),
    ):
        await tenant.done(tenant.bob, operation, uid, **data)
        first = await tenant.release(uid)
        await tenant.done(tenant.bob, operation, uid, **data)
        assert await tenant.release(uid) == first, operation


async def test_a_version_can_be_pinned(tenant: ReleaseTenant) -> None:
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "pin_version", uid, pinned="1")
    assert (await tenant.release(uid))["pinned"] is True
    await tenant.done(tenant.bob, "pin_version", uid, pinned="0")
    assert (await tenant.release(uid))["pinned"] is False


async def test_a_token_for_other_packages_changes_nothing(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    token = replace(tenant.bob, username="token:x", creator="bob", packages=("other.*",))
    for operation, data in {
        "approve_version": {},
        "promote_version": {"ring": "broad"},
        "pause_version": {},
        "resume_version": {},
        "hold_version": {"reason": "no"},
        "roll_back_version": {},
        "pin_version": {"pinned": "1"},
    }.items():
        answer = await tenant.call(token, operation, uid, **data)
        assert (answer.status, answer.body["code"]) == (403, "permission_missing"), operation


async def test_versions_of_other_tenants_are_unknown(tenant: ReleaseTenant, catalog: Catalog) -> None:
    uid = await tenant.publish()
    for operation, data in (("approve_version", {}), ("hold_version", {"reason": "no"}), ("roll_back_version", {})):
        assert (await tenant.call(make_caller(), operation, uid, **data)).status == 404
    assert (await catalog.call(make_caller(), "GET", "get_release", uid)).status == 404
    assert (await catalog.call(tenant.ada, "GET", "get_release", str(uuid4()))).status == 404


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


async def test_a_page_of_releases_has_its_limit_and_package(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy()
    await catalog.add_package(tenant.ada, "acme.viewer")
    uids = [await tenant.publish(version) for version in ("1.0", "2.0")]
    await catalog.add_version(tenant.ada, "acme.viewer")
    params = {"package_id": "acme.editor", "offset": "1", "limit": "1"}
    page = (await catalog.call(tenant.ada, "GET", "find_releases", params=params)).body
    assert ([row["uid"] for row in page["releases"]], page["total"]) == ([uids[0]], 2)


async def test_an_unknown_state_of_releases_is_refused(tenant: ReleaseTenant, catalog: Catalog) -> None:
    assert (await catalog.call(tenant.ada, "GET", "find_releases", params={"state": "x"})).status == 400


async def test_a_scan_lets_a_version_into_the_first_ring(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"pilot": {"scan": True}})
    uid = await tenant.publish()
    assert await tenant.offered(uid) == []
    for state in ("pending", "failed", "off", "nonsense", ""):
        catalog.stubs.checks[uid] = checks(state)
        await tenant.rounds()
        assert await tenant.offered(uid) == [], state
    catalog.stubs.checks[uid] = checks("clean", sha256="cd" * 32)
    await tenant.rounds()
    assert await tenant.offered(uid) == []
    catalog.stubs.checks[uid] = checks("clean")
    await tenant.rounds()
    assert await tenant.offered(uid) == ["pilot"]


@pytest.mark.parametrize("found", ["clean", "too_large"])
async def test_a_file_is_withheld_until_its_scan_gate_has_passed(
    tenant: ReleaseTenant, catalog: Catalog, found: str
) -> None:
    await tenant.set_policy(gates={"pilot": {"scan": True}, "broad": {"approvals": 1}})
    uid = await tenant.publish()
    for state in ("pending", "infected"):
        catalog.stubs.checks[uid] = checks(state)
        await tenant.rounds()
        assert await tenant.is_withheld(uid), state
    catalog.stubs.checks[uid] = checks(found)
    await tenant.rounds()
    assert await tenant.is_withheld(uid) is (found == "too_large")
    await tenant.done(tenant.bob, "approve_version", uid)
    await tenant.rounds()
    assert not await tenant.is_withheld(uid)


async def test_a_version_begins_only_after_its_file_is_withheld(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"pilot": {"scan": True}})
    catalog.stubs.refusal = NOT_THERE
    name = catalog.stubs.add_file()
    answer = await catalog.post_version(tenant.ada, server_filename=name, package_version="1.0")
    assert answer.status == 500
    listed = await catalog.call(tenant.ada, "GET", "get_package_versions", "acme.editor")
    assert listed.body == []
    catalog.stubs.refusal = None
    assert await tenant.is_withheld(await tenant.publish("1.0", server_filename=name))


async def test_a_file_scanned_before_its_first_ring_is_not_withheld_any_more(
    tenant: ReleaseTenant, catalog: Catalog
) -> None:
    async def scan() -> None:
        [uid] = catalog.stubs.linked_uids
        assert await tenant.is_withheld(uid)
        catalog.stubs.checks[uid] = checks("clean")

    await tenant.set_policy(gates={"pilot": {"scan": True}})
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


async def test_a_file_waits_for_a_scan_gate_that_is_set_later(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"pilot": {"approvals": 1}})
    uid = await tenant.publish()
    assert not await tenant.is_withheld(uid)
    await tenant.set_policy(gates={"pilot": {"approvals": 1, "scan": True}})
    await tenant.rounds()
    assert await tenant.is_withheld(uid)
    await tenant.set_policy(gates={"pilot": {"approvals": 1}})
    await tenant.rounds()
    assert not await tenant.is_withheld(uid)


async def test_no_answer_about_a_file_opens_no_gate(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"pilot": {"scan": True}, "broad": {"approvals": 1}})
    uid = await tenant.publish()
    catalog.stubs.release_refusal = NOT_THERE
    await tenant.rounds()
    await tenant.done(tenant.bob, "approve_version", uid)
    assert await tenant.offered(uid) == []
    answer = await tenant.call(tenant.bob, "promote_version", uid, ring="pilot")
    assert answer.status == 500
    catalog.stubs.release_refusal = None
    catalog.stubs.checks[uid] = checks()
    await tenant.rounds()
    assert await tenant.offered(uid) == ["pilot"]


@pytest.mark.parametrize("part", ["scan", "signature", "sha256"])
async def test_an_unreadable_answer_about_a_file_opens_no_gate(
    tenant: ReleaseTenant, catalog: Catalog, part: str
) -> None:
    await tenant.set_policy(gates={"pilot": {"scan": True}})
    uid, other = await tenant.publish("1.0"), await tenant.publish("2.0")
    catalog.stubs.checks = {uid: {**checks(), part: ["clean"]}, other: checks()}
    await tenant.rounds()
    assert [await tenant.offered(uid), await tenant.offered(other)] == [[], []]
    document = await catalog.database["versions"].find_one({"tenant_id": tenant.ada.tenant_id, "uid": uid})
    assert document
    assert document["release"]["due"] > datetime.now(UTC)  # It does not keep the loop from other versions.
    catalog.stubs.checks[uid] = checks()
    await tenant.rounds()
    assert [await tenant.offered(uid), await tenant.offered(other)] == [["pilot"], ["pilot"]]


async def test_an_infected_file_in_no_ring_waits_for_another_verdict(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"pilot": {"scan": True}})
    uid = await tenant.publish()
    catalog.stubs.infected, catalog.stubs.checks[uid] = [uid], checks("infected")
    await tenant.rounds()
    await catalog.releases.hold_infected()
    assert (await tenant.gate(uid, "pilot", "scan"))["state"] == "failed"
    assert (await tenant.release(uid))["status"] == "active"
    catalog.stubs.checks[uid] = checks()
    await tenant.rounds()
    assert await tenant.offered(uid) == ["pilot"]


async def test_a_file_that_turns_infected_is_held(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"pilot": {"scan": True}})
    uid = await tenant.publish()
    catalog.stubs.checks[uid] = checks()
    await tenant.rounds()
    catalog.stubs.infected, catalog.stubs.checks[uid] = [str(uuid4()), uid], checks("infected")

    await catalog.releases.hold_infected()

    release = await tenant.release(uid)
    assert (release["status"], release["reason"]) == ("held", "The scanner calls the file infected.")
    assert (release["codes"], release["history"][0]["codes"]) == (["scan_infected"], ["scan_infected"])
    assert catalog.stubs.withheld[uid][1] is True
    answer = await tenant.call(tenant.bob, "resume_version", uid)
    assert (answer.status, answer.body["code"]) == (409, "version_infected")


async def test_a_file_too_large_for_the_scanner_needs_an_approval(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"pilot": {"scan": True}})
    uid = await tenant.publish()
    await tenant.done(tenant.eve, "approve_version", uid)  # before the finding
    catalog.stubs.checks[uid] = checks("too_large")
    await tenant.rounds()
    assert await tenant.offered(uid) == []
    await tenant.done(tenant.bob, "approve_version", uid)
    assert await tenant.offered(uid) == ["pilot"]


async def test_an_external_installer_needs_an_approval(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates={"pilot": {"scan": True}})
    uid = await tenant.publish(**EXTERNAL)
    assert await tenant.offered(uid) == []
    await tenant.done(tenant.bob, "approve_version", uid)
    assert await tenant.offered(uid) == ["pilot"]


async def test_a_changed_signer_needs_an_approval(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"pilot": {"signature": "signed"}})
    old = await tenant.publish("1.0")
    catalog.stubs.checks[old] = checks(signer="CN=Acme")
    await tenant.rounds()
    assert await tenant.offered(old) == ["pilot"]
    new = await tenant.publish("2.0")
    catalog.stubs.checks[new] = checks(signer="CN=Evil")
    await tenant.rounds()
    gate = await tenant.gate(new, "pilot", "signature")
    assert (gate["state"], "CN=Evil" in gate["reason"], "CN=Acme" in gate["reason"]) == ("waiting", True, True)
    await tenant.done(tenant.bob, "approve_version", new)
    assert await tenant.offered(new) == ["pilot"]


async def test_automatic_changes_are_audited_once(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"pilot": {"scan": True}})
    uid = await tenant.publish()
    catalog.stubs.checks[uid] = checks()
    await tenant.rounds(5)
    target = {"package_id": "acme.editor", "version": "1.0", "uid": uid, "ring": "pilot"}
    assert tenant.audited(uid) == [
        ("check_gate", {**target, "step": "gate_passed", "reason": "The scanner calls the file clean."}),
        ("promote_version", {**target, "step": "entered"}),
    ]
    document = await catalog.database["versions"].find_one({"tenant_id": tenant.ada.tenant_id, "uid": uid})
    assert document
    assert document["release"]["unaudited"] == []
    assert document["release"]["due"] is None


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
    await tenant.set_policy(gates={"pilot": {"scan": True}, "broad": {"approvals": 1}})
    first, second = await tenant.publish("1.0"), await tenant.publish("2.0")
    catalog.stubs.checks[second] = checks()
    await tenant.rounds()
    assert await catalog.store.releases.waiting() == {"scan": 1, "approval": 1}
    await tenant.done(tenant.bob, "hold_version", first, reason="no")
    assert await catalog.store.releases.waiting() == {"approval": 1}


async def test_a_deleted_version_has_no_release(tenant: ReleaseTenant, catalog: Catalog, caller: Caller) -> None:
    await tenant.set_policy(gates={"pilot": {"scan": True}})
    uid = await tenant.publish()
    data = {"versions_uids": uid}
    assert (await catalog.call(caller, "DELETE", "delete_package_version", "acme.editor", data=data)).status == 200
    await tenant.rounds()
    assert (await catalog.call(caller, "GET", "get_release", uid)).status == 404
    assert (await tenant.call(tenant.bob, "hold_version", uid, reason="no")).status == 404


async def test_checks_are_asked_for_the_digest_of_the_file(tenant: ReleaseTenant) -> None:
    assert (await tenant.release(await tenant.publish()))["sha256"] == DIGEST


async def test_a_paused_version_does_not_enter_the_first_ring(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"pilot": {"scan": True}})
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "pause_version", uid)
    catalog.stubs.checks[uid] = checks()
    await tenant.rounds()
    assert await tenant.offered(uid) == []
    await tenant.done(tenant.bob, "resume_version", uid)
    assert await tenant.offered(uid) == ["pilot"]


async def test_each_change_of_a_stage_gives_the_catalog_a_new_revision(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    for operation, data in (
        ("promote_version", {"ring": "broad"}),
        ("pause_version", {}),
        ("hold_version", {"reason": "no"}),
        ("resume_version", {}),
        ("roll_back_version", {}),
        ("resume_version", {}),
    ):
        before = await catalog.store.revisions.state(tenant.ada.tenant_id, "")
        await tenant.done(tenant.bob, operation, uid, **data)
        after = await catalog.store.revisions.state(tenant.ada.tenant_id, "")
        assert after.since(before.revision) == {"acme.editor"}, operation


async def test_an_approval_does_not_move_a_paused_version(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates={"pilot": {"approvals": 1}})
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "pause_version", uid)
    await tenant.done(tenant.bob, "approve_version", uid)
    assert await tenant.offered(uid) == []


async def test_a_version_that_was_rolled_back_can_be_held_and_begins_again(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "promote_version", uid, ring="broad")
    await tenant.done(tenant.bob, "roll_back_version", uid)
    await tenant.done(tenant.bob, "hold_version", uid, reason="no")
    await tenant.done(tenant.bob, "resume_version", uid)
    assert await tenant.offered(uid) == ["pilot"]


async def test_who_approved_before_a_finding_approves_again(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"pilot": {"scan": True}})
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "approve_version", uid)
    catalog.stubs.checks[uid] = checks("too_large")
    await tenant.rounds()
    assert await tenant.offered(uid) == []

    await tenant.done(tenant.bob, "approve_version", uid)

    assert await tenant.offered(uid) == ["pilot"]


async def test_a_withdrawn_version_is_not_promoted_to_a_ring_that_it_entered(tenant: ReleaseTenant) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    await tenant.done(tenant.bob, "hold_version", uid, reason="no")
    answer = await tenant.call(tenant.bob, "promote_version", uid, ring="pilot")
    assert (answer.status, answer.body["code"]) == (409, "version_stopped")


async def test_a_pin_does_not_bring_back_an_infected_version(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy()
    uid = await tenant.publish()
    key = {"tenant_id": tenant.ada.tenant_id, "uid": uid}
    await catalog.database["versions"].update_one(key, {"$set": {"stage.status": "retired"}})
    catalog.stubs.checks[uid] = checks("infected")
    answer = await tenant.call(tenant.bob, "pin_version", uid, pinned="1")
    assert (answer.status, answer.body["code"]) == (409, "version_infected")
    assert await tenant.offered(uid) == []
