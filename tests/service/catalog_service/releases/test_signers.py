"""The signer of a version is compared with the one of the versions before it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import pytest

from catalog_service.model.installers import FileChecks
from catalog_service.outgoing.upload_service import UploadService
from catalog_service.releases.store import EARLIER
from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from common.service_client.client import ServiceClient
from tests.support.services.catalog import Catalog
from tests.support.services.releases import ReleaseTenant, checks

SIGNED = {"pilot": {"signature": "signed"}}
BEFORE_ACME = "The signer is CN=Evil; the version before was signed by CN=Acme. 0 of 1 approved."
NOT_KNOWN = "The signer is CN=Acme; the signer of the version before is not known. 0 of 1 approved."


BEFORE_BROAD = {"broad": {"signature": "signed"}}
UNSIGNED = checks(signature="unsigned", signer="")


async def promote(tenant: ReleaseTenant, uid: str) -> str:
    """Promote a version. Returns the gate that refuses that."""
    answer = await tenant.call(tenant.bob, "promote_version", uid, ring="broad")
    assert answer.status in {200, 409}, answer.body
    return str(answer.body.get("gate", ""))


@pytest.mark.parametrize(
    ("earlier", "gate"),
    [
        ([("CN=Acme", ""), ("", "")], "signature"),
        ([("CN=Acme", ""), *[("", "")] * EARLIER], "signature"),
        ([("CN=Acme", ""), ("CN=Evil", "hold_version")], "signature"),
        ([("CN=Acme", "roll_back_version")], "signature"),
        ([("", "")], ""),
    ],
    ids=["an unsigned one", "many unsigned ones", "a held one", "none, it was rolled back", "only an unsigned one"],
)
async def test_the_signer_is_compared_with_the_last_trusted_one(
    tenant: ReleaseTenant, catalog: Catalog, earlier: list[tuple[str, str]], gate: str
) -> None:
    await tenant.set_policy(gates=BEFORE_BROAD)
    for number, (signer, operation) in enumerate(earlier):
        uid = await tenant.publish(f"1.{number}")
        catalog.stubs.checks[uid] = checks(signer=signer) if signer else UNSIGNED
        if operation:
            await tenant.done(tenant.bob, operation, uid, reason="no")
    new = await tenant.publish("2.0")
    catalog.stubs.checks[new] = checks(signer="CN=Evil")
    assert await promote(tenant, new) == gate


async def test_an_unknown_signer_of_the_version_before_opens_no_gate(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates=BEFORE_BROAD)
    old, new = await tenant.publish("1.0"), await tenant.publish("2.0")
    catalog.stubs.checks[new] = checks(signer="CN=Evil")
    pending, other_file = checks(signature="pending", signer=""), checks(signer="CN=Evil", sha256="cd" * 32)
    for earlier in ({}, {old: pending}, {old: other_file}):
        catalog.stubs.checks |= earlier
        assert await promote(tenant, new) == "signature", earlier
    await tenant.done(tenant.bob, "approve_version", new)
    assert await promote(tenant, new) == ""


async def test_a_lapsed_signature_still_names_the_signer_before(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates=SIGNED)
    old = await tenant.publish_signed("1.0")
    for state in ("expired", "untrusted"):
        catalog.stubs.checks[old] = checks(signature=state)
        new = await tenant.publish_signed(state, "CN=Evil")
        assert (await tenant.stage(new), await tenant.signer_reason(new)) == ("", BEFORE_ACME), state


@pytest.mark.parametrize(
    ("has_gate", "operations"),
    [
        (True, [("promote_version", {"ring": "broad"})]),
        (True, [("promote_version", {"ring": "broad"}), ("roll_back_version", {})]),
        (False, [("roll_back_version", {})]),
    ],
    ids=["of a checked one", "of a withdrawn one", "of one from before the gate"],
)
async def test_two_unchecked_versions_do_not_replace_the_signer(
    tenant: ReleaseTenant, has_gate: bool, operations: list[tuple[str, dict[str, str]]]
) -> None:
    if has_gate:
        await tenant.set_policy(gates=BEFORE_BROAD)
    acme = await tenant.publish_signed("1.0")
    await tenant.set_policy(gates=BEFORE_BROAD)
    for operation, data in operations:
        await tenant.done(tenant.bob, operation, acme, **data)
    for uid in [await tenant.publish_signed(version, "CN=Evil") for version in ("2.0", "3.0")]:
        assert await promote(tenant, uid) == "signature"


@pytest.mark.parametrize("has_gate", [True, False])
async def test_a_resumed_version_outside_of_the_rings_names_the_signer(
    tenant: ReleaseTenant, catalog: Catalog, has_gate: bool
) -> None:
    if has_gate:
        await tenant.set_policy(gates=SIGNED)
    old = await tenant.publish_signed("1.0")
    await tenant.set_policy(gates=SIGNED)
    catalog.stubs.checks[old] = checks(signature="expired")  # It does not pass the gate again.
    for operation in ("roll_back_version", "resume_version"):
        await tenant.done(tenant.bob, operation, old)
    new = await tenant.publish_signed("2.0", "CN=Evil")
    assert (await tenant.stage(old), await tenant.stage(new)) == ("", "")
    await tenant.delete_versions(old)
    assert await tenant.signer_reason(await tenant.publish_signed("3.0", "CN=Evil")) == BEFORE_ACME


@pytest.mark.parametrize("deletes", ["version", "package", "version package"])
async def test_the_signer_of_deleted_versions_is_the_one_before(tenant: ReleaseTenant, deletes: str) -> None:
    await tenant.set_policy(gates=SIGNED)
    old = await tenant.publish_signed("1.0")
    if "version" in deletes:
        await tenant.delete_versions(old)
    if "package" in deletes:
        await tenant.delete_package()
        await tenant.catalog.add_package(tenant.ada)
    new = await tenant.publish_signed("2.0", "CN=Evil")
    assert (await tenant.stage(new), await tenant.signer_reason(new)) == ("", BEFORE_ACME)
    same = await tenant.publish_signed("3.0")
    assert await tenant.stage(same) == "pilot"


async def test_a_waiting_version_does_not_enter_after_a_deletion(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates=SIGNED)
    old, new = await tenant.publish_signed("1.0"), await tenant.publish_signed("2.0", "CN=Evil")
    await tenant.delete_versions(old)
    await tenant.rounds()
    assert await tenant.stage(new) == ""
    await tenant.done(tenant.bob, "approve_version", new)
    assert await tenant.stage(new) == "pilot"
    assert await tenant.stage(await tenant.publish_signed("3.0", "CN=Evil")) == "pilot"


async def test_another_spelling_of_a_package_id_has_the_same_signer(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates=SIGNED)
    await tenant.publish_signed("1.0")
    await tenant.delete_package()
    await catalog.add_package(tenant.ada, "Acme.\uff25ditor")
    new = await tenant.publish_signed("2.0", "CN=Evil", package_id="Acme.\uff25ditor")
    assert await tenant.stage(new) == ""


async def test_deletions_do_not_bring_an_earlier_signer_back(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates=SIGNED)
    first = await tenant.publish_signed("1.0", "CN=Former")
    second = await tenant.publish_signed("2.0")
    await tenant.done(tenant.bob, "approve_version", second)
    for number, uids in enumerate([(), (first,), (second,)]):
        await tenant.delete_versions(*uids) if uids else None
        new = await tenant.publish_signed(f"3.{number}", "CN=Former")
        assert (await tenant.stage(new), await tenant.signer_reason(new)) == (
            "",
            BEFORE_ACME.replace("CN=Evil", "CN=Former"),
        )


async def test_a_version_deleted_after_a_roll_back_does_not_name_the_signer(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates=SIGNED)
    await tenant.publish_signed("1.0")
    bad = await tenant.publish_signed("2.0", "CN=Evil")
    await tenant.done(tenant.bob, "approve_version", bad)
    await tenant.done(tenant.bob, "roll_back_version", bad)
    await tenant.delete_versions(bad)
    assert await tenant.stage(await tenant.publish_signed("3.0", "CN=Evil")) == ""
    assert await tenant.stage(await tenant.publish_signed("4.0")) == "pilot"


async def test_an_unsigned_version_does_not_replace_a_deleted_signer(tenant: ReleaseTenant, catalog: Catalog) -> None:
    signed, unsigned = await tenant.publish_signed("1.0"), await tenant.publish("2.0")
    catalog.stubs.checks[unsigned] = UNSIGNED
    await tenant.set_policy(gates=SIGNED)
    await tenant.delete_versions(signed)
    await tenant.delete_versions(unsigned)
    assert await tenant.signer_reason(await tenant.publish_signed("3.0", "CN=Evil")) == BEFORE_ACME


@pytest.mark.parametrize("found", [{}, {"signature": "pending", "signer": ""}, {"sha256": "cd" * 32}])
async def test_a_version_deleted_before_its_verification_asks_for_approval(
    tenant: ReleaseTenant, catalog: Catalog, found: dict[str, str]
) -> None:
    old = await tenant.publish("1.0")
    if found:
        catalog.stubs.checks[old] = checks(**found)
    await tenant.set_policy(gates=SIGNED)
    await tenant.delete_versions(old)
    new = await tenant.publish_signed("2.0")
    assert (await tenant.stage(new), await tenant.signer_reason(new)) == ("", NOT_KNOWN)
    await tenant.done(tenant.bob, "approve_version", new)
    assert await tenant.stage(new) == "pilot"


async def test_a_deletion_waits_until_the_signer_can_be_remembered(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates=SIGNED)
    old = await tenant.publish_signed("1.0")
    catalog.stubs.release_refusal = Unavailable()
    data = {"versions_uids": old}
    answer = await catalog.call(tenant.ada, "DELETE", "delete_package_version", "acme.editor", data=data)
    assert (answer.status, old in catalog.stubs.linked_uids) == (500, True)
    catalog.stubs.release_refusal = None
    await catalog.age_and_sweep()
    assert old not in catalog.stubs.linked_uids
    assert await tenant.signer_reason(await tenant.publish_signed("3.0", "CN=Evil")) == BEFORE_ACME


async def test_a_repeated_deletion_does_not_forget_the_signer(tenant: ReleaseTenant, catalog: Catalog) -> None:
    old = await tenant.publish_signed("1.0")
    await tenant.set_policy(gates=SIGNED)
    await catalog.store.versions.hide(tenant.ada.tenant_id, "acme.editor", [old])
    remember = catalog.releases.remember_signers
    await remember(tenant.ada.tenant_id, [old])
    del catalog.stubs.checks[old]  # Its file is deleted.
    assert await tenant.signer_reason(await tenant.publish_signed("2.0", "CN=Evil")) == BEFORE_ACME
    await remember(tenant.ada.tenant_id, [old])
    assert await tenant.signer_reason(await tenant.publish_signed("3.0", "CN=Evil")) == BEFORE_ACME


async def test_two_processes_that_delete_a_version_do_not_forget_its_signer(
    tenant: ReleaseTenant, catalog: Catalog
) -> None:
    tenant_id, old = tenant.ada.tenant_id, await tenant.publish_signed("1.0")
    await catalog.store.versions.hide(tenant_id, "acme.editor", [old])

    class SlowService(UploadService):
        async def checks(self, caller: Caller, version_uids: Sequence[str]) -> Mapping[str, FileChecks]:
            await catalog.releases.remember_signers(tenant_id, version_uids)  # The other one deletes the file then.
            return {}

    slow = SlowService(cast("ServiceClient", None))
    await replace(catalog.releases, installers=slow).remember_signers(tenant_id, [old])
    last = await catalog.store.releases.last_signer(tenant_id, "acme.editor")
    assert last
    assert last.signer == "CN=Acme"


async def test_deleted_versions_that_entered_no_ring_name_no_signer(tenant: ReleaseTenant) -> None:
    await tenant.set_policy(gates={"pilot": {"signature": "signed", "approvals": 1}})
    await tenant.delete_versions(await tenant.publish_signed("1.0", "CN=Evil"))
    new = await tenant.publish_signed("2.0")
    await tenant.done(tenant.bob, "approve_version", new)
    assert (await tenant.gate(new, "pilot", "signature"))["by"] == []


async def test_a_deleted_tenant_leaves_no_signer(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.delete_versions(await tenant.publish_signed("1.0"))
    assert await catalog.database["package_signers"].count_documents({"tenant_id": tenant.ada.tenant_id}) == 1
    await catalog.store.forget_tenant(tenant.ada.tenant_id)
    assert await catalog.database["package_signers"].count_documents({"tenant_id": tenant.ada.tenant_id}) == 0
