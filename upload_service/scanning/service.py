"""Scans stored files for malware: each file by one replica, one file of each tenant in turn.

A file is due by its record alone. The announcement of an upload is not consumed here: it would only be a second faster,
and a queue of this service would let it count as delivered before the catalog listens.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from common.concurrency.lease import keep_lease
from common.errors import Problem
from common.telemetry import log
from upload_service.model import Upload
from upload_service.scanning.metrics_store import ScanMetrics
from upload_service.scanning.model import Engine, ScanFailed, ScanLease, Scanner, ScanState, Verdict
from upload_service.scanning.store import MongoScanStore
from upload_service.storage.filesystem import StorageBackends

PAUSE_WITHOUT_SCANNER = 10.0  # seconds
RENEWAL_SECONDS = 5.0  # A lease lasts 30.


@dataclass
class Scans:
    """Scans files that are due. Files of more than `limit` bytes are not sent; a scan takes at most `timeout` seconds.

    `active` are the tenants with a file that this replica scans now.
    """

    store: MongoScanStore
    backends: StorageBackends
    scanner: Scanner
    limit: int
    timeout: float
    metrics: ScanMetrics
    active: set[str] = field(default_factory=set)

    async def scan_due(self) -> None:
        """Scan all files that are due, one of each tenant in turn. Several tasks may run this at once."""
        last = ""
        while True:
            try:
                engine = await self.scanner.check()
            except ScanFailed as error:  # No file is leased: the scanner is at fault, not a file.
                log.warning("scanner_unusable", reason=str(error))
                await asyncio.sleep(PAUSE_WITHOUT_SCANNER)
                return
            lease = await self.store.acquire_lease(last, self.active)
            if lease is not None:
                last = lease.upload.tenant_id
                await self._scan_leased(lease, engine)
            elif last:
                last = ""
            else:
                return

    async def _scan_leased(self, lease: ScanLease, engine: Engine) -> None:
        self.active.add(lease.upload.tenant_id)
        try:
            await self._scan(lease, engine)
        except asyncio.CancelledError:  # The process stops; no other one must wait for the end of the lease.
            await self.store.release(lease)
            raise
        finally:
            self.active.discard(lease.upload.tenant_id)

    async def _scan(self, lease: ScanLease, engine: Engine) -> None:
        upload = lease.upload
        try:
            async with keep_lease(partial(self.store.renew, lease), RENEWAL_SECONDS, **upload.log_fields):
                verdict = await self._verdict(upload)
        except (ScanFailed, Problem, OSError) as error:
            reason = type(error).__name__ if isinstance(error, OSError) else str(error)  # An OSError names a path.
            is_current, state = await self.store.mark_failed(lease, reason, engine), ScanState.FAILED
            log.warning("scan_failed", reason=reason, **upload.log_fields)
        else:
            is_current, state = await self.store.mark_scanned(lease, verdict, engine), verdict.state
            report = log.error if state is ScanState.INFECTED else log.info
            report("installer_scanned", state=state, reason=verdict.reason, **upload.log_fields)
        if is_current:
            self.metrics.scans.labels(state).inc()

    async def _verdict(self, upload: Upload) -> Verdict:
        """The verdict about exactly the bytes that were uploaded."""
        if upload.size > self.limit:
            return Verdict(ScanState.TOO_LARGE, "larger than SCANNER_LIMIT")
        digest = hashlib.sha256()
        blocks = self.backends.of(upload).read(upload, 0, upload.size)
        try:
            async with asyncio.timeout(self.timeout), aclosing(_hashed(blocks, digest)) as hashed:
                verdict = await self.scanner.scan(upload, hashed)
        except TimeoutError:
            raise ScanFailed(f"the scanner did not answer within {self.timeout:.0f} seconds") from None
        if verdict.state is not ScanState.TOO_LARGE and digest.hexdigest() != upload.sha256:
            raise ScanFailed("the file that was scanned is not the one that was uploaded")
        return verdict


async def _hashed(blocks: AsyncGenerator[bytes, None], digest: "hashlib._Hash") -> AsyncGenerator[bytes, None]:
    async with aclosing(blocks):
        async for block in blocks:
            await asyncio.to_thread(digest.update, block)
            yield block
