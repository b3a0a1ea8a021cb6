"""Inspects what was uploaded: each file once, by one replica, and no file more than three times.

No tenant keeps the others waiting: a replica inspects at most one file of a tenant at once.

A file is to be inspected from the moment that its record says it is complete, which is also what lets `upload.finished`
be announced. No broker is asked for it: a queue of our own at the exchange would let an announcement count as heard
before the catalog listens.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath
from typing import BinaryIO, Protocol

from common.concurrency.limits import FairConcurrencyLimit
from common.errors import Overloaded, Unavailable
from common.telemetry import log
from upload_service.content_range import parse_server_filename
from upload_service.inspection.findings import Findings
from upload_service.inspection.process import Reason, Unreadable
from upload_service.model import InstallerMissing, InstallerNotFound, StorageFull, Upload

PROCESSES = 2  # of one replica, and at most one of them for the files that nobody asked about
ATTEMPTS = 3
SLOT_TIMEOUT = 5.0  # seconds
LOOKS, LOOK_PAUSE = 50, 0.1  # how often, with so many seconds between, it is looked whether somebody else has done it


class State(StrEnum):
    """How far an inspection is."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Inspection:
    """What is known of a file. `reason` is why a failed one failed; `findings` are those of one that is done."""

    server_filename: str
    state: State
    reason: str = ""
    findings: Findings = field(default_factory=Findings)


@dataclass(frozen=True)
class InspectionLease:
    """A file that this process has taken to inspect; `attempt` counts from 1."""

    upload: Upload
    attempt: int


class InspectionStore(Protocol):
    """Inspection records. Methods that take an `InspectionLease` do nothing when another process has the lease."""

    async def find(self, tenant_id: str, server_filename: str) -> Inspection | None:
        """What is known of a file; one that nobody asked about before waits from now on. None where there is none."""

    async def waiting_tenants(self) -> Sequence[str]:
        """The tenants with a file that waits, in the order of their ids."""

    async def acquire_lease(self, tenant_id: str, server_filename: str = "") -> InspectionLease | None:
        """The tenant's file that waits the longest, or this one if it waits, for this process alone for a while."""

    async def postpone(self, taken: InspectionLease) -> None:
        """Let a file wait some more; the attempt does not count."""

    async def mark_done(self, taken: InspectionLease, findings: Findings) -> None: ...

    async def mark_failed(self, taken: InspectionLease, reason: Reason) -> None: ...


class Lender(Protocol):
    """Opens installers."""

    def open(self, upload: Upload) -> AbstractAsyncContextManager[BinaryIO]: ...


class Inspector:
    """Inspects files. `read` takes a file and the ending of its name; it raises Unreadable, and Unavailable."""

    def __init__(
        self, store: InspectionStore, lender: Lender, read: Callable[[BinaryIO, str], Awaitable[Findings]]
    ) -> None:
        self._store = store
        self._lender = lender
        self._read = read
        self._limit = FairConcurrencyLimit(PROCESSES)

    async def inspect_due(self) -> None:
        """Inspect the files that wait, one after another: one of each tenant, then one of each again.

        A tenant is passed over while its own requests occupy its slot.
        """
        has_tried = True
        while has_tried:
            has_tried = False
            for tenant_id in await self._store.waiting_tenants():
                if not self._limit.is_active(tenant_id):
                    has_tried = True
                    with suppress(Overloaded):
                        await self._inspect_next(tenant_id)

    async def find(self, tenant_id: str, server_filename: str) -> Inspection:
        """What is known of a file now. Raises InstallerNotFound."""
        name = parse_server_filename(server_filename)
        found = await self._store.find(tenant_id, name) if name else None
        if found is None:
            raise InstallerNotFound("There is no installer of this name.")
        return found

    async def inspect(self, tenant_id: str, server_filename: str) -> Inspection:
        """What is known of a file once it was inspected, which is done now where nobody is at it.

        Raises:
            InstallerNotFound: there is no such file.
            Overloaded: other files are inspected now.
            Unavailable: another replica is still inspecting the file, or it cannot be had.
        """
        for _ in range(LOOKS):
            found = await self.find(tenant_id, server_filename)
            if found.state is not State.WAITING:
                return found
            if await self._inspect_next(tenant_id, server_filename):
                break
            await asyncio.sleep(LOOK_PAUSE)  # Somebody else is at it.
        found = await self.find(tenant_id, server_filename)
        if found.state is State.WAITING:
            raise Unavailable("The installer is still being inspected.")
        return found

    async def _inspect_next(self, tenant_id: str, server_filename: str = "") -> bool:
        """Inspect a file that `take` gives. Returns whether there was one. Raises Overloaded."""
        async with self._limit.acquire(tenant_id, SLOT_TIMEOUT):
            taken = await self._store.acquire_lease(tenant_id, server_filename)
            if taken:
                await self._inspect(taken)
        return taken is not None

    async def _inspect(self, taken: InspectionLease) -> None:
        upload = taken.upload
        words = {"tenant_id": upload.tenant_id, "server_filename": upload.server_filename}
        try:
            if taken.attempt > ATTEMPTS:
                raise Unreadable(Reason.GIVEN_UP)
            async with self._lender.open(upload) as file:
                findings = await self._read(file, PurePath(upload.server_filename).suffix)
        except Unreadable as error:
            await self._store.mark_failed(taken, error.reason)
            log.warning("inspection_failed", reason=error.reason, **words)
        except (Unavailable, StorageFull) as error:
            await self._store.postpone(taken)
            log.warning("inspection_postponed", error=type(error).__name__, **words)
        except (InstallerMissing, OSError) as error:  # It may be on its way to another home; its lease runs out.
            log.warning("installer_not_inspected", error=type(error).__name__, **words)
        else:
            await self._store.mark_done(taken, findings)
            log.info("installer_inspected", format=findings.format, **words)
