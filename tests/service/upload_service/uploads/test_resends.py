"""A repeated chunk of a complete transfer, with the file in any storage."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from tests.support.factories import make_caller, make_tenant
from tests.support.services.storage_pair import FILE, StoragePair
from upload_service.model import ContentRange, FileId, StorageKind
from upload_service.storage.migration import Outcome
from upload_service.uploads.service import Transfers
from upload_service.uploads.session import UploadSessions

LAST = 100  # bytes of the chunk


class LateBody:
    """A chunk whose body arrives after the file was moved to the other storage."""

    suffix = ""

    def __init__(self, storages: StoragePair) -> None:
        self._estate = storages

    def large_blocks(self, length: int | None) -> AsyncIterator[bytes]:
        return self.blocks()

    async def blocks(self) -> AsyncIterator[bytes]:
        assert await self._estate.move_all(StorageKind.S3) == [Outcome.MOVED]
        yield FILE[-LAST:]


async def test_a_repeated_chunk_is_answered_while_its_file_moves(storages: StoragePair) -> None:
    upload = await storages.add_installer()
    with ThreadPoolExecutor(1) as readers:
        transfers = Transfers(UploadSessions(storages.removal, storages.folder, lambda: None, readers))
        span = ContentRange(len(FILE) - LAST, len(FILE) - 1, len(FILE))
        caller, file_id = make_caller(make_tenant(tenant_id=upload.tenant_id)), FileId(upload.file_id)
        progress = await transfers.append(caller, file_id, span, LateBody(storages))
    assert progress.server_filename == upload.server_filename
