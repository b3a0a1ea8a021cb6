"""Two processes' worth of upload_service, and a transfer that either of them may go on with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from common.caller import Caller
from common.mongo import MongoDatabase, open_database
from tests.support.services.upload import UploadApi, make_uploader, serving_uploads, settings_for

FILE = bytes(range(256)) * 4
HALF = len(FILE) // 2


@dataclass(frozen=True)
class Replicas:
    """They have one folder and one database."""

    one: UploadApi
    two: UploadApi
    database: MongoDatabase

    async def begun(self) -> Caller:
        """A tenant whose transfer `f` has the first half of the file."""
        caller = make_uploader()
        assert (await self.one.chunk(caller, "f", FILE[:HALF], 0, len(FILE))).status == 200
        return caller


@asynccontextmanager
async def two_replicas(mongo_url: str, folder: Path) -> AsyncIterator[Replicas]:
    """Serve both until the block ends."""
    settings = settings_for(mongo_url, folder)
    async with (
        serving_uploads(settings) as one,
        serving_uploads(settings) as two,
        open_database(mongo_url, settings.database) as database,
    ):
        yield Replicas(one, two, database)
