"""Two replicas of upload_service that share their transfers."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase, open_database
from tests.support.api import Answer
from tests.support.samples.stalled_chunk import StalledChunk
from tests.support.services.upload import UploadApi, make_uploader, serving_uploads, sha256
from tests.support.wait import until
from upload_service.model import Status
from upload_service.settings import UploadSettings
from upload_service.store import NOW
from upload_service.uploads.store import MongoUploadStore

FILE = bytes(range(256)) * 4
HALF = len(FILE) // 2
OTHER = bytes(byte ^ 1 for byte in FILE)


@dataclass(frozen=True)
class Replicas:
    """Two replicas with one folder and one database. Their transfer is `f`."""

    first: UploadApi
    second: UploadApi
    database: MongoDatabase

    async def start_transfer(self) -> Caller:
        """Start the transfer with the first half of the file. Returns its caller."""
        caller = make_uploader()
        assert (await self.send(caller, 0, HALF)).status == 200
        return caller

    async def send(
        self, caller: Caller, start: int, stop: int, *, second: bool = False, content: bytes = FILE, **options: Any
    ) -> Answer:
        """Send a part of the file to one of the replicas."""
        api = self.second if second else self.first
        return await api.chunk(caller, "f", content[start:stop], start, len(content), **options)

    async def finish(self, caller: Caller, start: int, content: bytes = FILE) -> None:
        """Send the rest of the file to the second replica, and compare what is stored."""
        self.expect_file(caller, await self.send(caller, start, len(content), second=True, content=content), content)

    def expect_file(self, caller: Caller, answer: Answer, content: bytes = FILE) -> None:
        """Expect this file, and no other."""
        assert (answer.status, answer.body.get("sha256")) == (200, sha256(content)), answer.body
        name = answer.body["server_filename"]
        assert (self.first.folder / caller.tenant_id / name).read_bytes() == content
        assert self.first.files(caller) == [name]

    async def expect_nothing(self, caller: Caller) -> None:
        """Expect no transfer, no file and no reservation."""
        stored = {"tenant_id": caller.tenant_id, "status": {"$ne": Status.CANCELLED}}
        records = await self.database["uploads"].count_documents(stored)
        assert (records, self.first.files(caller), await self.first.usage(caller)) == (0, [], (0, 0))

    async def record(self, caller: Caller) -> dict[str, Any]:
        record = await self.database["uploads"].find_one({"tenant_id": caller.tenant_id, "file_id": "f"})
        assert record is not None
        return record

    async def expire_lease(self, caller: Caller) -> None:
        """Let the lease of the holder expire, who is paused or has died."""
        await expire_lease(self.database, caller)

    async def until_released(self, caller: Caller) -> None:
        """Wait until no replica keeps the lease for its next chunk."""
        await until_released(self.database, caller, "f")

    async def until_cancelled(self, caller: Caller) -> None:
        """Wait until the record is marked as cancelled."""

        async def is_cancelled() -> bool:
            return bool((await self.record(caller))["cancelled"])

        await until(is_cancelled)

    async def stall_chunk(self, caller: Caller, start: int, length: int = HALF) -> StalledChunk:
        """Send a chunk that stalls. The first replica has acquired the transfer's lease."""
        await self.until_released(caller)
        chunk = StalledChunk(self.first, caller, "f", FILE[start : start + length], start, len(FILE))

        async def leased() -> bool:
            record = await self.database["uploads"].find_one({"tenant_id": caller.tenant_id, "file_id": "f"})
            return record is not None and record["fence"] == (2 if start else 1)

        await until(leased)
        return chunk


async def expire_lease(database: MongoDatabase, caller: Caller, file_id: str = "f") -> None:
    expired_at = datetime.now(UTC) - timedelta(seconds=1)
    record = {"tenant_id": caller.tenant_id, "file_id": file_id}
    await database["uploads"].update_one(record, {"$set": {"lease_until": expired_at}})


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


class Pause:
    """Blocks the first worker thread before or after a method until the test releases it."""

    def __init__(
        self, patched: pytest.MonkeyPatch, owner: type, method: str, moment: Literal["before", "after"]
    ) -> None:
        self._inside, self._go_on = threading.Event(), threading.Event()
        real = getattr(owner, method)

        def stop() -> None:
            if not self._inside.is_set():
                self._inside.set()
                self._go_on.wait(60)

        def stopping(*arguments: object) -> object:
            if moment == "before":
                stop()
            result = real(*arguments)
            if moment == "after":
                stop()
            return result

        patched.setattr(owner, method, stopping)

    async def reached(self) -> None:
        await asyncio.to_thread(self._inside.wait, 60)

    def end(self) -> None:
        self._go_on.set()


def watch_store(patched: pytest.MonkeyPatch) -> list[str]:
    """The calls of the store of transfers from now on."""
    calls = list[str]()
    for name in ("acquire_lease", "find", "create", "renew", "release", "advance"):
        real = getattr(MongoUploadStore, name)

        def counted(*arguments: object, _name: str = name, _real: Any = real, **options: object) -> object:
            calls.append(_name)
            return _real(*arguments, **options)

        patched.setattr(MongoUploadStore, name, counted)
    return calls
