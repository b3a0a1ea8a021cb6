"""Announcements: every complete file is announced, also after failures of the broker."""

import asyncio
from uuid import uuid4

import aio_pika
import pytest

from common.events import Event, LocalEvents
from common.events.broker import open_events
from common.mongo import MongoDatabase
from tests.support.services.upload import make_uploader, serving_uploads, sha256
from tests.support.wait import TIMEOUT, until
from upload_service.settings import UploadSettings

FILE = b"installer " * 100
MANY = 40  # more than a relay announces at once


class WaitingListener:
    """A listener that waits for a number of events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = asyncio.Condition()

    async def handle(self, event: Event) -> None:
        async with self._news:
            self.events.append(event)
            self._news.notify_all()

    async def until(self, file_ids: set[str]) -> None:
        async with asyncio.timeout(TIMEOUT), self._news:
            await self._news.wait_for(lambda: file_ids <= {event.data["file_id"] for event in self.events})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed announcement is repeated soon."""
    monkeypatch.setattr("upload_service.app.RELAY_PAUSE", 0.05)
    monkeypatch.setattr("upload_service.uploads.store.ANNOUNCING_SECONDS", 0.3)


@pytest.fixture
async def listener() -> WaitingListener:
    """A listener of no events yet."""
    return WaitingListener()


@pytest.fixture
async def events(listener: WaitingListener) -> LocalEvents:
    """The events that the listener hears."""
    events = LocalEvents()
    await events.subscribe("tests", "upload.finished", listener.handle)
    return events


async def settled(database: MongoDatabase) -> None:
    """Wait until nothing is left to announce."""

    async def announced() -> bool:
        return await database["uploads"].count_documents({"work.announce": {"$exists": True}}) == 0

    await until(announced)


async def test_a_complete_file_is_announced(
    settings: UploadSettings, database: MongoDatabase, listener: WaitingListener, events: LocalEvents
) -> None:
    caller = make_uploader()
    async with serving_uploads(settings, events) as api:
        assert (await api.chunk(caller, "f", FILE[:10], 0, len(FILE))).status == 200
        assert listener.events == []
        last = await api.chunk(caller, "f", FILE[10:], 10, len(FILE))
        await listener.until({"f"})
        stored = await api.store(make_uploader(), ("file", FILE, "a.exe"))
        await settled(database)
    event, of_one_call = listener.events
    assert (event.type, event.source, event.tenant_id) == ("upload.finished", "upload_service", caller.tenant_id)
    assert event.data == {
        "file_id": "f",
        "server_filename": last.body["server_filename"],
        "size": len(FILE),
        "sha256": sha256(FILE),
    }
    assert of_one_call.data["server_filename"] == stored.body["server_filename"]


async def test_an_announcement_waits_for_its_first_consumer(
    settings: UploadSettings, database: MongoDatabase, listener: WaitingListener
) -> None:
    caller, events = make_uploader(), LocalEvents()
    async with serving_uploads(settings, events) as api:
        answers = await asyncio.gather(*(api.chunk(caller, f"f{n}", FILE, 0, len(FILE)) for n in range(MANY)))
        assert {answer.status for answer in answers} == {200}
        await events.subscribe("tests", "upload.finished", listener.handle)
        await listener.until({f"f{n}" for n in range(MANY)})
        await settled(database)


async def test_a_repeated_announcement_has_the_same_id(
    settings: UploadSettings, database: MongoDatabase, listener: WaitingListener
) -> None:
    events = LocalEvents()

    async def fail_once(event: Event) -> None:
        await listener.handle(event)
        if len(listener.events) == 1:
            raise ValueError("not this time")

    await events.subscribe("tests", "upload.finished", fail_once)
    async with serving_uploads(settings, events) as api:
        await api.upload(make_uploader(), FILE)
        await settled(database)
    assert len(listener.events) == 2
    assert len({event.event_id for event in listener.events}) == 1


async def test_another_process_announces_after_a_crash(
    settings: UploadSettings, listener: WaitingListener, events: LocalEvents
) -> None:
    async with serving_uploads(settings, LocalEvents()) as api:
        assert (await api.chunk(make_uploader(), "f", FILE, 0, len(FILE))).status == 200
    async with serving_uploads(settings, events):
        await listener.until({"f"})


async def test_metrics_count_unannounced_uploads(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.telemetry.metrics.CACHE_LIFETIME", 0)
    events = LocalEvents()
    async with serving_uploads(settings, events) as api:
        await api.upload(make_uploader(), FILE)
        before = await api.metrics()
        assert before.value("pkgrepo_outbox_waiting") == 1
        assert 0 < (await api.metrics()).value("pkgrepo_outbox_lag_seconds") < TIMEOUT
        await events.subscribe("tests", "upload.finished", WaitingListener().handle)
        await settled(database)
        after = await api.metrics()
    assert (after.value("pkgrepo_outbox_waiting"), after.value("pkgrepo_outbox_lag_seconds")) == (0, 0)
    assert len(after.named("pkgrepo_outbox_lag_seconds")) == 1
    assert after.value("pkgrepo_uploads_finished_total") == 1


async def test_announcements_travel_over_rabbitmq(
    settings: UploadSettings, database: MongoDatabase, listener: WaitingListener, rabbitmq_url: str
) -> None:
    caller, queue = make_uploader(), f"test.{uuid4().hex[:8]}"
    ids = {f"f{n}" for n in range(20)}
    async with open_events(rabbitmq_url) as subscriber, open_events(rabbitmq_url) as publisher:
        await subscriber.subscribe(queue, "upload.finished", listener.handle)
        async with serving_uploads(settings, publisher) as api:
            await asyncio.gather(*(api.chunk(caller, file_id, FILE, 0, len(FILE)) for file_id in ids))
            await listener.until(ids)
            await settled(database)
    # This queue must not count as a consumer in other tests.
    async with await aio_pika.connect(rabbitmq_url) as connection:
        await (await connection.channel()).queue_delete(queue)


async def test_uploads_are_accepted_without_a_broker(settings: UploadSettings) -> None:
    async with (
        open_events("amqp://guest:guest@127.0.0.1:1/") as broken_events,
        serving_uploads(settings, broken_events) as api,
    ):
        caller = make_uploader()
        name = await api.upload(caller, FILE)
        assert (await api.claim(caller, name)).status == 200
        assert (await api.get(api.address(caller, name))).body == FILE
