"""A service with its records, whose maintenance a test runs by itself."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase
from tests.support.services.upload import UploadApi
from tests.support.wait import until
from upload_service.model import Upload
from upload_service.uploads.store import MongoUploadStore


@dataclass
class Stored:
    """A service and the records of its uploads."""

    api: UploadApi
    database: MongoDatabase

    async def until_announced(self) -> None:
        """Wait until the relay uses no file, and no record of a discarded one stays."""

        async def is_announced() -> bool:
            return not await self.database["uploads"].count_documents({"work.announce": {"$exists": True}})

        await until(is_announced)

    async def change(self, caller: Caller, **fields: object) -> None:
        """Set fields of a tenant's uploads."""
        await self.database["uploads"].update_many({"tenant_id": caller.tenant_id}, {"$set": fields})

    async def age(self, caller: Caller, **days: float) -> None:
        """Set how long ago a tenant's uploads changed, after their announcement."""
        await self.until_announced()
        await self.change(caller, updated_at=datetime.now(UTC) - timedelta(**days))

    async def count(self, caller: Caller) -> int:
        return await self.database["uploads"].count_documents({"tenant_id": caller.tenant_id})

    async def record(self, caller: Caller, file_id: str = "f") -> Upload:
        upload = await MongoUploadStore(self.database).find(caller.tenant_id, file_id)
        assert upload is not None
        return upload
