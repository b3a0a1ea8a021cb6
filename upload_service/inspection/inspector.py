"""Inspects uploaded files: each file once, by one replica, in at most three attempts.

No tenant delays the others: a replica inspects at most one file of a tenant at once.

A file is due once its record is complete. The broker is not involved: a queue of this service would let an announcement
count as delivered before the catalog listens.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import BinaryIO

from common.concurrency.limits import FairConcurrencyLimit
from common.errors import Overloaded, Unavailable
from common.telemetry import log
from common.work import Lease, Worker, do_leased
from upload_service.inspection.model import Findings, Inspection, Reason, Signature, State
from upload_service.inspection.process import InstallerFiles, Unreadable
from upload_service.inspection.store import MongoInspectionStore
from upload_service.model import InstallerMissing, InstallerNotFound, StorageFull, Upload, parse_server_filename

PROCESSES, IN_BACKGROUND = 2, 1  # of one replica, and those of them for the files that no caller waits for
ATTEMPTS = 3
SLOT_TIMEOUT = 5.0  # seconds
UNAVAILABLE_PAUSE = 30  # seconds until a file is tried again
POLLS, POLL_PAUSE = 50, 0.1  # how often a caller asks for the result of another process, and the seconds in between


@dataclass(frozen=True)
class Inspector:
    """Inspects files. `read` gets a file and the ending of its name; it raises Unreadable and Unavailable.

    `verify` returns the verdict about the signatures of a file; it raises Unavailable.
    """

    store: MongoInspectionStore
    files: InstallerFiles
    read: Callable[[BinaryIO, str], Awaitable[Findings]]
    verify: Callable[[BinaryIO], Awaitable[Signature]]
    limit: FairConcurrencyLimit = field(default_factory=lambda: FairConcurrencyLimit(PROCESSES))

    def worker(self) -> Worker[Upload]:
        """Inspects the files that no caller waits for. A tenant with a request of its own is skipped."""
        return Worker(self.store.queue, self._inspect_in_turn, limit=IN_BACKGROUND, skip=self.limit.active)

    async def find(self, tenant_id: str, server_filename: str) -> Inspection:
        """The current inspection of a file. Raises InstallerNotFound."""
        name = parse_server_filename(server_filename)
        inspection = await self.store.find(tenant_id, name) if name else None
        if inspection is None:
            raise InstallerNotFound
        return inspection

    async def inspect(self, tenant_id: str, server_filename: str) -> Inspection:
        """The finished inspection of a file; inspects it now unless another process does.

        Raises:
            InstallerNotFound: there is no such file.
            Overloaded: other files are inspected now.
            Unavailable: another replica is still inspecting the file, or its storage does not respond.
        """
        for _ in range(POLLS):
            inspection = await self.find(tenant_id, server_filename)
            if inspection.state is not State.PENDING:
                return inspection
            if await self._inspect_now(tenant_id, server_filename):
                break
            await asyncio.sleep(POLL_PAUSE)
        inspection = await self.find(tenant_id, server_filename)
        if inspection.state is State.PENDING:
            raise Unavailable("The installer is still being inspected.")
        return inspection

    async def _inspect_now(self, tenant_id: str, server_filename: str) -> bool:
        """Inspect a file if it is due; False if it is not. Raises Overloaded."""
        async with self.limit.acquire(tenant_id, SLOT_TIMEOUT):
            lease = await self.store.queue.lease(tenant_id=tenant_id, server_filename=server_filename)
            if lease:
                await do_leased(self.store.queue, lease, self._inspect)
        return lease is not None

    async def _inspect_in_turn(self, lease: Lease[Upload]) -> None:
        try:
            async with self.limit.acquire(lease.tenant_id, SLOT_TIMEOUT):
                await self._inspect(lease)
        except Overloaded:  # by requests
            await self.store.queue.release(lease)

    async def _inspect(self, lease: Lease[Upload]) -> None:
        upload = lease.record
        try:
            if lease.attempts > ATTEMPTS:
                raise Unreadable(Reason.GIVEN_UP)
            async with self.files.open(upload) as file:
                findings = await self.read(file, PurePath(upload.server_filename).suffix)
                findings = replace(findings, signature=await self.verify(file))
        except Unreadable as error:
            await self.store.mark_failed(lease, error.reason)
            log.warning("inspection_failed", reason=error.reason, **upload.log_fields)
        except (Unavailable, StorageFull) as error:
            await self.store.queue.release(lease, UNAVAILABLE_PAUSE)
            log.warning("inspection_postponed", error=type(error).__name__, **upload.log_fields)
        except (InstallerMissing, OSError) as error:  # It may be moving to another storage.
            await self.store.queue.retry(lease)
            log.warning("installer_not_inspected", error=type(error).__name__, **upload.log_fields)
        else:
            await self.store.mark_done(lease, findings)
            log.info("installer_inspected", format=findings.format, **upload.log_fields)
