"""Holds each tenant's ledger against the records it is made from, and sets right what has drifted."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from common.telemetry import log
from upload_service.model import Status, Upload

DAY = 24 * 3600  # seconds between two comparisons of the same ledger
SECOND_LOOK = 2.0  # seconds


@dataclass(frozen=True)
class Ledger:
    """What a tenant's ledger says. Bytes: `used` by linked files, `reserved` as the sum of `holds` by upload id.

    `settled` are uploads that are gone from it already, though their record may still be there.
    """

    used: int
    reserved: int
    holds: Mapping[str, int]
    settled: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Drift:
    """A ledger that is not what the records say: `seen` and `right`."""

    tenant_id: str
    actual: Ledger
    expected: Ledger


class LedgerStore(Protocol):
    """Ledgers and records, both as they were at one moment."""

    async def tenants(self) -> Sequence[str]: ...

    async def lease_due(self, age: int) -> str | None:
        """A tenant whose ledger nobody has taken for `age` seconds; from then on it is taken."""

    async def snapshot_read(self, tenant_id: str) -> tuple[Ledger, Sequence[Upload]]: ...

    async def correct(self, tenant_id: str, seen: Ledger, right: Ledger) -> bool:
        """Change the ledger where it is still what was seen."""


class Reconciliation:
    """Finds drift. `pause` is how many seconds pass until drift is looked at again before it is believed."""

    def __init__(self, store: LedgerStore, *, pause: float = SECOND_LOOK) -> None:
        self._store = store
        self._pause = pause

    async def check_due(self) -> None:
        """Compare the ledgers that are due, each by one replica a day, and log what has drifted."""
        while (tenant_id := await self._store.lease_due(DAY)) is not None:
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
        """How the ledger differs from the records, where it does so twice in the same way."""
        first = await self._look(tenant_id)
        if first is None:
            return None
        await asyncio.sleep(self._pause)
        second = await self._look(tenant_id)
        return second if second and _amount(second) == _amount(first) else None

    async def find_all_drift(self, tenant_id: str | None = None) -> Sequence[Drift]:
        """The drift of one tenant, or of all."""
        tenants = await self._store.tenants() if tenant_id is None else [tenant_id]
        return [drift for each in tenants if (drift := await self.find_drift(each))]

    async def repair(self, drift: Drift) -> bool:
        """Set a ledger right; False where something changed it in between."""
        return await self._store.correct(drift.tenant_id, drift.actual, drift.expected)

    async def _look(self, tenant_id: str) -> Drift | None:
        seen, uploads = await self._store.snapshot_read(tenant_id)
        right = expected_ledger(seen, uploads)
        return Drift(tenant_id, seen, right) if right != seen else None


def expected_ledger(ledger: Ledger, uploads: Sequence[Upload]) -> Ledger:
    """The ledger that the records ask for; a row of a request that is between two steps stays as it is."""
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


def _amount(drift: Drift) -> tuple[int, int]:
    return drift.actual.used - drift.expected.used, drift.actual.reserved - drift.expected.reserved
