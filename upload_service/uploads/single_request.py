"""The one-call form: its installer is stored as it arrives (section 4.5, single-tenant)."""

import hashlib
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


class SingleRequestUploads:
    """Stores installers that arrive in one request."""

    def __init__(self, sessions: UploadSessions, quota: QuotaStore) -> None:
        self._sessions = sessions
        self._quota = quota

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
        upload = await self._sessions.create(tenant.tenant_id)
        async with self._sessions.hold(upload) as session, session.removed_on_failure():
            reservation = IncrementalReservation(self._quota, upload, tenant.storage_quota, max_size=form.max_size)
            await reservation.ensure(form.min_size)
            size = await session.write(prepend(first, blocks), digest, reservation.ensure)
            await self._quota.shrink(upload, size)
            return await session.finish(size, form.suffix, digest)
