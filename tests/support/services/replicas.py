"""Two replicas of upload_service that share their transfers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase, open_database
from tests.support.samples.stalled_chunk import StalledChunk
from tests.support.services.upload import UploadApi, make_uploader, serving_uploads
from tests.support.wait import until
from upload_service.settings import UploadSettings
from upload_service.store import NOW

FILE = bytes(range(256)) * 4
HALF = len(FILE) // 2


@dataclass(frozen=True)
class Replicas:
    """Two replicas with one folder and one database."""

    first: UploadApi
    second: UploadApi
    database: MongoDatabase

    async def start_transfer(self) -> Caller:
        """Start the transfer `f` with the first half of the file. Returns its caller."""
        caller = make_uploader()
        assert (await self.first.chunk(caller, "f", FILE[:HALF], 0, len(FILE))).status == 200
        return caller

    async def lease_released(self, caller: Caller) -> None:
        """Wait until no replica keeps the lease of `f` for its next chunk."""
        await until_released(self.database, caller, "f")

    async def stall_chunk(self, caller: Caller, start: int, length: int = HALF) -> StalledChunk:
        """Send a chunk of `f` that stalls. The first replica has acquired the transfer's lease."""
        await self.lease_released(caller)
        chunk = StalledChunk(self.first, caller, "f", FILE[start : start + length], start, len(FILE))

        async def leased() -> bool:
            record = await self.database["uploads"].find_one({"tenant_id": caller.tenant_id, "file_id": "f"})
            return record is not None and record["fence"] == (2 if start else 1)

        await until(leased)
        return chunk


async def until_released(database: MongoDatabase, caller: Caller, file_id: str) -> None:
    """Wait until no replica has the lease of a transfer."""
    held = {"tenant_id": caller.tenant_id, "file_id": file_id, "$expr": {"$gt": ["$lease_until", NOW]}}

    async def is_free() -> bool:
        return await database["uploads"].count_documents(held) == 0

    await until(is_free)


@asynccontextmanager
async def two_replicas(settings: UploadSettings) -> AsyncIterator[Replicas]:
    """Run both replicas."""
    async with (
        serving_uploads(settings) as first,
        serving_uploads(settings) as second,
        open_database(settings.mongo_url, settings.database) as database,
    ):
        yield Replicas(first, second, database)
