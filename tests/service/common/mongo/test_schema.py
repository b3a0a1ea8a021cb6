"""A service migrates its database before the first request, and refuses a newer one."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from common.events import Event, EventsUnavailable
from common.mongo import Document, MongoDatabase, open_database
from common.mongo.schema import Done, Migration, Schema, set_version, version_of
from tests.support.services.catalog import Catalog, serving_catalog
from tests.support.services.upload import UploadApi, make_uploader, serving_uploads, settings_for
from tests.support.wait import until
from upload_service import app as app_module
from upload_service.settings import UploadSettings
from upload_service.store import SCHEMA

UPLOADER = make_uploader()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.http.server.RETRY_PAUSE", 0.05)
    monkeypatch.setattr("common.http.server.START_TIMEOUT", 0.2)


@pytest.fixture
def settings(mongo_url: str, tmp_path: Path) -> UploadSettings:
    return settings_for(mongo_url, tmp_path)


@pytest.fixture
async def database(settings: UploadSettings) -> AsyncIterator[MongoDatabase]:
    async with open_database(settings.mongo_url, settings.database) as database:
        yield database
        await database.client.drop_database(database.name)


def upload_record(**fields: Any) -> Document:
    long_ago = datetime(1970, 1, 1, tzinfo=UTC)
    record = {"tenant_id": UPLOADER.tenant_id, "upload_id": uuid4().hex, "total": 1000, "offset": 1000, "fence": 1}
    return {**record, "lease_until": long_ago, "tainted": False, "updated_at": datetime.now(UTC), **fields}


async def readyz(api: UploadApi | Catalog) -> tuple[int, Any]:
    service = api.service if isinstance(api, UploadApi) else api.api
    async with service.session.get(f"{service.address}/readyz") as answer:
        return answer.status, await answer.json()


async def ready(api: UploadApi | Catalog) -> None:
    async def is_ready() -> bool:
        return (await readyz(api))[0] == 200

    await until(is_ready)


async def reports(api: UploadApi, text: str) -> None:
    """Wait until the service reports this reason."""

    async def is_reported() -> bool:
        return text in (await readyz(api))[1].get("missing", {}).get("schema", "")

    await until(is_reported)


class BlockedMigration:
    """A migration that blocks until the test releases it."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.begun = 0

    async def work(self, database: MongoDatabase, done: Done) -> None:
        self.begun += 1
        done(1)
        await self.release.wait()


@pytest.fixture
def blocked_migration(monkeypatch: pytest.MonkeyPatch) -> BlockedMigration:
    """Replaces the migrations of the service."""
    blocked_migration = BlockedMigration()
    monkeypatch.setattr(app_module, "SCHEMA", Schema([Migration("wait", blocked_migration.work)], SCHEMA.indexes))
    return blocked_migration


async def test_a_service_waits_while_its_database_is_newer(settings: UploadSettings, database: MongoDatabase) -> None:
    async def announced() -> bool:
        return len(api.announced) == 1

    await set_version(database, 7)
    folder = settings.installers / UPLOADER.tenant_id
    folder.mkdir()
    name = f"{uuid4().hex}.exe"
    (folder / name).touch()
    now = datetime.now(UTC)
    waiting = {
        "status": "complete",
        "work": {"announce": {"due": now, "since": now}},
        "server_filename": name,
        "size": 0,
        "sha256": "",
    }
    await database["uploads"].insert_one(upload_record(file_id="a", part=0, home="folder", damage="", **waiting))
    with capture_logs() as logs:
        async with serving_uploads(settings) as api:
            await reports(api, "schema is newer than this program, 7 where it knows 0")
            assert [(await readyz(api))[0] for _ in range(10)] == [503] * 10
            refused = await api.state(UPLOADER, "a")
            assert (refused.status, refused.body["detail"]) == (500, "The service is starting; try again soon.")
            assert (await api.get(f"{api.service.address}/livez")).status == 200
            assert not await announced()
            assert await database["storage"].count_documents({}) == 0
            (entry,) = [entry for entry in logs if entry["event"] == "not_ready"]
            assert "schema is newer than this program" in entry["error"]
            await set_version(database, 0)
            await ready(api)
            assert (await api.state(UPLOADER, "a")).status == 200
            await until(announced)


async def test_a_service_receives_no_event_before_its_migrations(
    settings: UploadSettings, database: MongoDatabase, redis_url: str
) -> None:
    data = {"server_filename": "a.msi", "file_id": "a", "size": 1, "sha256": "ab" * 32}
    event = Event("e", "upload.finished", "/upload_service", UPLOADER.tenant_id, datetime.now(UTC), data)
    await set_version(database, 9)
    async with serving_catalog(settings.mongo_url, redis_url, database=database.name) as catalog:
        with pytest.raises(EventsUnavailable):
            await catalog.events.publish(event)
        await set_version(database, 0)
        await ready(catalog)
        await catalog.events.publish(event)
    assert await database["finished_uploads"].distinct("server_filename") == ["a.msi"]


async def test_requests_are_refused_while_one_replica_migrates_for_all(
    settings: UploadSettings, database: MongoDatabase, blocked_migration: BlockedMigration
) -> None:
    async with serving_uploads(settings) as first:
        await reports(first, "migrating, 1: wait, 1 documents")
        async with serving_uploads(settings) as second:
            await reports(second, "another process is migrating it")
            for api in (first, second):
                assert (await api.state(UPLOADER, "a")).status == 500
                assert (await api.get(f"{api.service.address}/livez")).status == 200
            blocked_migration.release.set()
            for api in (first, second):
                await ready(api)
                assert (await api.state(UPLOADER, "a")).status == 404
    assert (blocked_migration.begun, await version_of(database)) == (1, 1)


async def test_a_failed_migration_is_retried_and_the_service_continues(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [KeyError("home")]

    async def work(_: MongoDatabase, __: Done) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(app_module, "SCHEMA", Schema([Migration("fail at first", work)], {}))
    with capture_logs() as logs:
        async with serving_uploads(settings) as api:
            await ready(api)
    (entry,) = [entry for entry in logs if entry["event"] == "not_ready"]
    assert (entry["error"], entry["exc_info"].args) == ("KeyError", ("home",))
