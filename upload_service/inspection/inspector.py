"""Inspects uploaded files: each file once, by one replica, in at most three attempts.

No tenant delays the others: a replica inspects at most one file of a tenant at once.

A file is due once its record is complete. The broker is not involved: a queue of this service would let an announcement
count as delivered before the catalog listens.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePath
from typing import BinaryIO

from common.concurrency.lease import keep_lease
from common.concurrency.limits import FairConcurrencyLimit
from common.errors import Overloaded, Unavailable
from common.telemetry import log
from upload_service.inspection.installer_files import InstallerFiles
from upload_service.inspection.model import Findings, Inspection, InspectionLease, Reason, Signature, State
from upload_service.inspection.process import Unreadable
from upload_service.inspection.store import MongoInspectionStore
from upload_service.model import InstallerMissing, InstallerNotFound, StorageFull, parse_server_filename

PROCESSES = 2  # of one replica, and at most one of them for the files that no caller waits for
ATTEMPTS = 3
SLOT_TIMEOUT = 5.0  # seconds
RENEWAL_SECONDS = 5.0  # A lease lasts 30.
UNAVAILABLE_PAUSE, ERROR_PAUSE = 30, 120  # seconds until a file is tried again
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

    async def inspect_due(self) -> None:
        """Inspect all files that are due, one of each tenant in turn; a tenant with a request of its own is skipped."""
        has_tried = True
        while has_tried:
            has_tried = False
            for tenant_id in await self.store.waiting_tenants():
                if not self.limit.is_active(tenant_id):
                    has_tried = True
                    with suppress(Overloaded):
                        await self._inspect_next(tenant_id)

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
            if await self._inspect_next(tenant_id, server_filename):
                break
            await asyncio.sleep(POLL_PAUSE)
        inspection = await self.find(tenant_id, server_filename)
        if inspection.state is State.PENDING:
            raise Unavailable("The installer is still being inspected.")
        return inspection

    async def _inspect_next(self, tenant_id: str, server_filename: str = "") -> bool:
        """Inspect a file that is due; False without one. Raises Overloaded."""
        async with self.limit.acquire(tenant_id, SLOT_TIMEOUT):
            lease = await self.store.acquire_lease(tenant_id, server_filename)
            if lease:
                await self._inspect_leased(lease)
        return lease is not None

    async def _inspect_leased(self, lease: InspectionLease) -> None:
        try:
            await self._inspect(lease)
        except asyncio.CancelledError:  # The process stops, which is not the fault of the file.
            await self.store.release(lease)
            raise

    async def _inspect(self, lease: InspectionLease) -> None:
        upload = lease.upload
        try:
            if lease.attempt > ATTEMPTS:
                raise Unreadable(Reason.GIVEN_UP)
            async with (
                keep_lease(partial(self.store.renew, lease), RENEWAL_SECONDS, **upload.log_fields),
                self.files.open(upload) as file,
            ):
                findings = await self.read(file, PurePath(upload.server_filename).suffix)
                findings = replace(findings, signature=await self.verify(file))
        except Unreadable as error:
            await self.store.mark_failed(lease, error.reason)
            log.warning("inspection_failed", reason=error.reason, **upload.log_fields)
        except (Unavailable, StorageFull) as error:
            await self.store.release(lease, UNAVAILABLE_PAUSE)
            log.warning("inspection_postponed", error=type(error).__name__, **upload.log_fields)
        except (InstallerMissing, OSError) as error:  # It may be moving to another storage.
            await self.store.release(lease, ERROR_PAUSE, counts=True)
            log.warning("installer_not_inspected", error=type(error).__name__, **upload.log_fields)
        else:
            await self.store.mark_done(lease, findings)
            log.info("installer_inspected", format=findings.format, **upload.log_fields)
