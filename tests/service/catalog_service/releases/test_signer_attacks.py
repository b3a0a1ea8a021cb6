"""No order of a publisher's operations brings another signer past the gate."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import permutations

import pytest

from common.errors import Unavailable
from tests.support.factories import make_caller
from tests.support.services.catalog import Catalog
from tests.support.services.releases import ReleaseTenant, checks
from tests.support.tables import every_cell

STEPS = 2


@dataclass
class Publisher:
    """A publisher whose package had one version of CN=Acme, and who publishes versions of CN=Evil."""

    tenant: ReleaseTenant
    good: list[str] = field(default_factory=list)
    evil: list[str] = field(default_factory=list)
    unsigned: list[str] = field(default_factory=list)

    async def publish_evil(self) -> None:
        uid = await self.tenant.publish(f"2.{len(self.evil)}")
        self.tenant.catalog.stubs.checks[uid] = checks(signer="CN=Evil")
        self.evil.append(uid)

    async def publish_unsigned(self) -> None:
        uid = await self.tenant.publish(f"3.{len(self.unsigned)}")
        self.tenant.catalog.stubs.checks[uid] = checks(signature="unsigned", signer="")
        self.unsigned.append(uid)

    async def delete_good(self) -> None:
        if self.good:
            await self.tenant.delete_versions(*self.good)
            self.good = []

    async def delete_package(self) -> None:
        await self.tenant.delete_package()
        await self.tenant.catalog.add_package(self.tenant.ada)
        self.good, self.evil, self.unsigned = [], [], []

    async def delete_in_an_outage(self) -> None:
        """Delete the versions of both signers while upload_service is away; the sweeper finishes that."""
        catalog, uids = self.tenant.catalog, [*self.good, *self.evil]
        if uids:
            catalog.stubs.release_refusal, data = Unavailable(), {"versions_uids": ",".join(uids)}
            await catalog.call(self.tenant.ada, "DELETE", "delete_package_version", "acme.editor", data=data)
            self.good, self.evil, catalog.stubs.release_refusal = [], [], None
            await self.publish_evil()
            await catalog.age_and_sweep()

    async def wait_until_the_signature_lapses(self) -> None:
        self.tenant.catalog.stubs.checks |= {uid: checks(signature="expired") for uid in self.good}

    async def has_passed(self) -> bool:
        """Whether a version of CN=Evil gets into the ring with the gate, also if somebody tries to promote it."""
        await self.tenant.rounds()
        for uid in self.evil:
            await self.tenant.call(self.tenant.bob, "promote_version", uid, ring="broad")
        return any(["broad" in await self.tenant.offered(uid) for uid in self.evil])


OPERATIONS: Mapping[str, Callable[[Publisher], Awaitable[None]]] = {
    "publish": Publisher.publish_evil,
    "publish unsigned": Publisher.publish_unsigned,
    "delete": Publisher.delete_good,
    "delete the package": Publisher.delete_package,
    "delete in an outage": Publisher.delete_in_an_outage,
    "wait": Publisher.wait_until_the_signature_lapses,
}


@pytest.mark.full
@pytest.mark.parametrize("ring", ["pilot", "broad"])
async def test_no_order_of_operations_passes_another_signer(catalog: Catalog, ring: str) -> None:
    with every_cell() as cell:
        for names in permutations(OPERATIONS, STEPS):
            tenant = ReleaseTenant(catalog, make_caller(username="ada"))
            await catalog.add_package(tenant.ada)
            await tenant.set_policy(gates={ring: {"signature": "signed"}})
            publisher = Publisher(tenant, [await tenant.publish_signed("1.0")])
            await tenant.done(tenant.bob, "promote_version", publisher.good[0], ring="broad")
            with cell(*names):
                for name in names:
                    await OPERATIONS[name](publisher)
                    assert not await publisher.has_passed(), name
                await publisher.publish_evil()
                assert not await publisher.has_passed()
            await catalog.store.forget_tenant(tenant.ada.tenant_id)
