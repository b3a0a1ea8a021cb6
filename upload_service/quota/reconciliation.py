"""Compares each tenant's ledger with the upload records it is made from, and corrects drift."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from common.telemetry import log
from upload_service.model import Status, Upload
from upload_service.quota.store import Ledger, MongoQuotaStore

DAY = 24 * 3600  # seconds between two comparisons of the same ledger
SECOND_LOOK = 2.0  # seconds


@dataclass(frozen=True)
class Drift:
    """A ledger that differs from the one its upload records ask for."""

    tenant_id: str
    actual: Ledger
    expected: Ledger

    @property
    def difference(self) -> tuple[int, int]:
        return self.actual.used - self.expected.used, self.actual.reserved - self.expected.reserved


@dataclass(frozen=True)
class Reconciliation:
    """Finds drift. `pause` is the number of seconds between the two comparisons that must agree."""

    store: MongoQuotaStore
    pause: float = SECOND_LOOK

    async def check_due(self) -> None:
        """Compare the ledgers that are due, each by one replica a day, and log drift."""
        while (tenant_id := await self.store.lease_due(DAY)) is not None:
            if drift := await self.find_drift(tenant_id):
                log.error(
                    "quota_drift",
                    tenant_id=tenant_id,
                    used=drift.actual.used,
                    used_by_records=drift.expected.used,
                    reserved=drift.actual.reserved,
                    reserved_by_records=drift.expected.reserved,
                )

    async def find_drift(self, tenant_id: str) -> Drift | None:
        """The drift of a tenant's ledger, if two comparisons find the same."""
        first = await self._compare(tenant_id)
        if first is None:
            return None
        await asyncio.sleep(self.pause)
        second = await self._compare(tenant_id)
        return second if second and second.difference == first.difference else None

    async def find_all_drift(self, tenant_id: str | None = None) -> Sequence[Drift]:
        """The drift of one tenant, or of all."""
        tenants = await self.store.tenants() if tenant_id is None else [tenant_id]
        return [drift for each in tenants if (drift := await self.find_drift(each))]

    async def repair(self, drift: Drift) -> bool:
        """Correct a ledger; False if it has changed in between."""
        return await self.store.correct(drift.tenant_id, drift.actual, drift.expected)

    async def _compare(self, tenant_id: str) -> Drift | None:
        actual, uploads = await self.store.snapshot_read(tenant_id)
        expected = expected_ledger(actual, uploads)
        return Drift(tenant_id, actual, expected) if expected != actual else None


def expected_ledger(ledger: Ledger, uploads: Sequence[Upload]) -> Ledger:
    """The ledger that the records ask for; a row of a request between two steps stays as it is."""
    used, holds = 0, {}
    for upload in uploads:
        held = ledger.holds.get(upload.upload_id)
        if upload.status is Status.COMPLETE:
            holds[upload.upload_id] = upload.size
        elif upload.status is Status.OPEN and upload.total and upload.offset:
            holds[upload.upload_id] = upload.total
        elif held is not None:  # of unknown length yet, linked and not yet charged, or being deleted
            holds[upload.upload_id] = held
        elif upload.upload_id not in ledger.settled:
            used += upload.size
    return Ledger(used, sum(holds.values()), holds, ledger.settled)
