"""The one-call form: its installer is stored as it arrives (section 4.5, single-tenant)."""

import hashlib
from dataclasses import dataclass
from typing import Protocol

from common.tenants import Tenant
from upload_service.model import Upload
from upload_service.quota.service import IncrementalReservation, QuotaStore
from upload_service.storage.filesystem import prepend
from upload_service.uploads.chunk import Chunk
from upload_service.uploads.session import UploadSessions


class InstallerForm(Chunk, Protocol):
    """A form with at most one installer; `blocks` gives none without one. Sizes are bytes, as known before reading."""

    @property
    def min_size(self) -> int: ...

    @property
    def max_size(self) -> int | None: ...


@dataclass(frozen=True)
class SingleRequestUploads:
    """Stores installers that arrive in one request."""

    sessions: UploadSessions
    quota: QuotaStore

    async def store(self, tenant: Tenant, form: InstallerForm) -> Upload | None:
        """Read the whole form and store its installer; None if it has no installer. A failure stores nothing.

        Raises:
            InvalidRequest: the form is malformed or contradicts itself.
            StorageExceeded: the file does not fit in the tenant's quota.
            StorageFull: the disk is full.
        """
        blocks = form.blocks()
        first = await anext(blocks, None)
        if first is None:
            return None
        digest = hashlib.sha256()
        upload = await self.sessions.create(tenant.tenant_id)
        async with self.sessions.hold(upload) as session, session.removed_on_failure():
            reservation = IncrementalReservation(self.quota, upload, tenant.storage_quota, max_size=form.max_size)
            await reservation.ensure(form.min_size)
            size = await session.write(prepend(first, blocks), digest, reservation.ensure)
            await self.quota.shrink(upload, size)
            return await session.finish(size, form.suffix, digest)
