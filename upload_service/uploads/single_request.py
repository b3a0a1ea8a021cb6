"""The one-call form: its installer stored as it comes (section 4.5, single-tenant)."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Protocol
from uuid import uuid4

from common.tenants import Tenant
from upload_service.model import Upload
from upload_service.quota.service import IncrementalReservation
from upload_service.uploads.part_writer import write_in_thread
from upload_service.uploads.session import UploadSession, lease_lost_error


class InstallerForm(Protocol):
    """A form that may hold an installer. `suffix` is the file's, known once the blocks are read."""

    suffix: str

    @property
    def least(self) -> int:
        """Bytes that the installer surely has, as far as that is known before it is read."""

    @property
    def most(self) -> int | None:
        """Bytes that the installer cannot have more than, where that is known."""

    def blocks(self) -> AsyncIterator[bytes]:
        """The installer's bytes, none of them empty; no block where the form has no installer."""


class SingleRequestUploads:
    """Stores installers that come in one call."""

    def __init__(self, intake: UploadSession) -> None:
        self._intake = intake

    async def store(self, tenant: Tenant, form: InstallerForm) -> Upload | None:
        """Read the whole form and store its installer; None where it has none.

        Raises:
            InvalidRequest: the form is broken, or says two things; nothing is kept of it.
            StorageExceeded: the file does not fit in the tenant's quota.
            StorageFull: there is no room on the disk.
        """
        blocks = form.blocks()
        first = await anext(blocks, None)
        if first is None:
            return None
        upload = await self._begin(tenant.tenant_id)
        digest = hashlib.sha256()
        async with self._intake.leased(upload), self._intake.undone(upload):
            reservation = IncrementalReservation(self._intake.quota, upload, tenant.storage_quota, most=form.most)
            await reservation.ensure(form.least)
            async with self._intake.written(upload, digest) as part:
                size = await write_in_thread(_with(first, blocks), part.take, reservation.ensure)
            await self._intake.quota.shrink(upload, size)
            whole = replace(upload, offset=size)
            return await self._intake.finish(whole, form.suffix, digest)

    async def _begin(self, tenant_id: str) -> Upload:
        file_id = uuid4().hex
        await self._intake.store.create(tenant_id, file_id, 0)
        upload = await self._intake.store.acquire_lease(tenant_id, file_id)
        if upload is None:
            raise lease_lost_error()
        return upload


async def _with(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for block in rest:
        yield block
