"""The signer of a version is compared with the one of the versions before it."""

from catalog_service.releases.store import EARLIER
from tests.support.services.catalog import Catalog
from tests.support.services.releases import ReleaseTenant, checks


async def test_unsigned_versions_do_not_hide_a_changed_signer(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"broad": {"signature": "signed"}})
    signed, unsigned, new = [await tenant.publish(version) for version in ("1.0", "2.0", "3.0")]
    catalog.stubs.checks |= {signed: checks(), unsigned: checks(signature="unsigned", signer="")}
    catalog.stubs.checks[new] = checks(signer="CN=Evil")
    answer = await tenant.call(tenant.bob, "promote_version", new, ring="broad")
    assert (answer.body["code"], "CN=Acme" in answer.body["detail"]) == ("gate_waiting", True)


async def test_many_unsigned_versions_do_not_hide_a_changed_signer(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"broad": {"signature": "signed"}})
    catalog.stubs.checks[await tenant.publish("1.0")] = checks()
    for number in range(EARLIER):
        catalog.stubs.checks[await tenant.publish(f"2.{number}")] = checks(signature="unsigned", signer="")
    new = await tenant.publish("3.0")
    catalog.stubs.checks[new] = checks(signer="CN=Evil")
    assert (await tenant.call(tenant.bob, "promote_version", new, ring="broad")).body["code"] == "gate_waiting"


async def test_the_first_signed_version_needs_no_approval(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"broad": {"signature": "signed"}})
    catalog.stubs.checks[await tenant.publish("1.0")] = checks(signature="unsigned", signer="")
    uid = await tenant.publish("2.0")
    catalog.stubs.checks[uid] = checks()
    await tenant.done(tenant.bob, "promote_version", uid, ring="broad")


async def test_an_unknown_signer_of_the_version_before_opens_no_gate(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"broad": {"signature": "signed"}})
    old, new = await tenant.publish("1.0"), await tenant.publish("2.0")
    catalog.stubs.checks[new] = checks(signer="CN=Evil")
    for earlier in ({}, {old: checks(signature="pending", signer="")}, {old: checks(sha256="cd" * 32)}):
        catalog.stubs.checks |= earlier
        answer = await tenant.call(tenant.bob, "promote_version", new, ring="broad")
        assert (answer.status, answer.body.get("gate")) == (409, "signature"), earlier
    await tenant.done(tenant.bob, "approve_version", new)
    await tenant.done(tenant.bob, "promote_version", new, ring="broad")


async def test_the_signer_before_is_not_one_of_a_withdrawn_version(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"broad": {"signature": "signed"}})
    good, evil, new = [await tenant.publish(version) for version in ("1.0", "2.0", "3.0")]
    catalog.stubs.checks |= {good: checks(), evil: checks(signer="CN=Evil"), new: checks(signer="CN=Evil")}
    await tenant.done(tenant.bob, "hold_version", evil, reason="no")
    assert (await tenant.call(tenant.bob, "promote_version", new, ring="broad")).body["code"] == "gate_waiting"


async def test_a_withdrawn_version_still_names_the_signer_before(tenant: ReleaseTenant, catalog: Catalog) -> None:
    await tenant.set_policy(gates={"broad": {"signature": "signed"}})
    good, new = await tenant.publish("1.0"), await tenant.publish("2.0")
    catalog.stubs.checks |= {good: checks(), new: checks(signer="CN=Evil")}
    await tenant.done(tenant.bob, "roll_back_version", good)
    assert (await tenant.call(tenant.bob, "promote_version", new, ring="broad")).body["code"] == "gate_waiting"
