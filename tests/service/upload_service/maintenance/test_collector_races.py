"""The collector against claims of the same files: each file is either claimed or collected."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from common.mongo import MongoDatabase
from tests.support.services.upload import make_uploader, serving_uploads
from tests.support.wait import until
from upload_service.settings import UploadSettings

FILE = b"installer " * 10


@pytest.mark.parametrize("races", [30, pytest.param(200, marks=pytest.mark.full)])
async def test_a_file_is_claimed_or_collected_and_never_both(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch, races: int
) -> None:
    monkeypatch.setattr("upload_service.app.COLLECTION_PAUSE", 0)
    # A deletion that fails on a busy machine is repeated in time.
    monkeypatch.setattr("upload_service.uploads.claims.INTERRUPTED", 1)
    caller = make_uploader()
    async with serving_uploads(settings) as api:
        uploads = database["uploads"]
        names = await asyncio.gather(*(api.upload(caller, FILE) for _ in range(races)))

        async def age(name: str) -> None:
            query = {"tenant_id": caller.tenant_id, "server_filename": name}
            await uploads.update_one(query, {"$set": {"updated_at": datetime.now(UTC) - timedelta(days=2)}})

        async def race(name: str) -> int:
            """The claim and the collector see a file at the same moment."""
            _, answer = await asyncio.gather(age(name), api.claim(caller, name, f"version of {name}"))
            return answer.status

        async def settled() -> bool:
            return await uploads.count_documents({"tenant_id": caller.tenant_id, "status": {"$ne": "linked"}}) == 0

        statuses = {name: await race(name) for name in names}
        assert set(statuses.values()) <= {200, 404}
        await until(settled)
        won = {name for name, status in statuses.items() if status == 200}
        assert set(api.files(caller)) == won
        for name in won:
            assert (await api.get(api.address(caller, name))).body == FILE
        assert await api.usage(caller) == (len(won) * len(FILE), 0)
