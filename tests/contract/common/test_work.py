"""Due work on a real MongoDB: no work is lost, and none is done by two holders."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo.errors import AutoReconnect
from structlog.testing import capture_logs

from common.errors import Unavailable
from common.mongo import Document, MongoDatabase, make_indexes, open_database
from common.work import Lease, Postponed, Worker, WorkQueue, due_now, is_waiting, work_indexes
from tests.support.databases import RecordedCommands
from tests.support.wait import until

KIND = "paint"
LEASE_SECONDS = 30
Queue = WorkQueue[str]


class Killed(BaseException):
    """The end of the process: nothing after it reaches the database."""


class Things:
    """A collection of things to paint, and queues on it, one for each replica."""

    def __init__(self, database: MongoDatabase) -> None:
        self.collection = database["things"]
        self.database = database

    def queue(self, **options: Any) -> Queue:
        def name_of(document: Document) -> str:
            return str(document["name"])

        return WorkQueue(self.collection, KIND, name_of, condition={"is_gone": False}, **options)

    async def add(self, tenant_id: str, *names: str, **fields: Any) -> None:
        """Add things that are due, the first one the longest."""
        for name in names:
            await self.collection.insert_one({"tenant_id": tenant_id, "name": name, "is_gone": False, **fields})
            await self.make_due(name)

    async def make_due(self, name: str) -> None:
        await self.collection.update_one({"name": name}, [{"$set": due_now(KIND)}])

    async def pass_time(self, seconds: float) -> None:
        times = [f"work.{KIND}.due", f"work.{KIND}.since"]
        earlier = {name: {"$subtract": [f"${name}", seconds * 1000]} for name in times}
        await self.collection.update_many(is_waiting(KIND), [{"$set": earlier}])

    async def find(self, name: str) -> Document:
        document = await self.collection.find_one({"name": name})
        assert document is not None
        return document

    async def waiting(self) -> int:
        return await self.collection.count_documents(is_waiting(KIND))


@pytest.fixture
async def things(mongo_url: str) -> AsyncIterator[Things]:
    async with open_database(mongo_url, f"test_work_{uuid4().hex[:8]}") as database:
        await make_indexes(database, {"things": work_indexes(KIND, backlog=True)})
        yield Things(database)
        await database.client.drop_database(database.name)


async def leased(queue: Queue, after: str = "", without: Collection[str] = ()) -> Lease[str]:
    lease = await queue.lease(after, without)
    assert lease is not None
    return lease


async def test_one_of_many_replicas_leases_a_record(things: Things) -> None:
    await things.add("a", *"123456")
    leases = await asyncio.gather(*(things.queue().lease() for _ in range(20)))
    assert sorted(lease.record for lease in leases if lease) == list("123456")
    assert await things.queue().lease() is None


async def test_a_change_and_its_work_are_one_update(things: Things) -> None:
    await things.add("a", "1")
    queue = things.queue()
    assert await queue.finish(await leased(queue), {"color": "red"})
    document = await things.find("1")
    assert (document["color"], document["work"]) == ("red", {})
    await things.collection.update_one({"name": "1"}, [{"$set": {"color": "none", **due_now(KIND)}}])
    assert (await leased(queue)).attempts == 1


async def test_a_record_that_does_not_meet_the_condition_is_not_leased(things: Things) -> None:
    await things.add("a", "1", "2")
    queue = things.queue()
    held = await leased(queue)
    await things.collection.update_many({}, {"$set": {"is_gone": True}})
    assert await queue.lease() is None
    assert not await queue.renew(held)
    assert not await queue.finish(held, {"color": "red"})


async def test_work_of_one_kind_is_no_work_of_another(things: Things) -> None:
    await things.add("a", "1")
    other = WorkQueue(things.collection, "polish", str)
    assert await other.lease() is None
    await things.collection.update_many({}, [{"$set": due_now("polish")}])
    assert await things.queue().finish(await leased(things.queue()))
    assert await other.lease() is not None


async def test_a_lease_can_be_for_one_record(things: Things) -> None:
    await things.add("a", "1", "2")
    lease = await things.queue().lease(name="2")
    assert lease is not None
    assert lease.record == "2"
    assert await things.queue().lease(name="2") is None


@pytest.mark.parametrize("is_renewed", [False, True])
async def test_a_lease_ends_unless_it_is_renewed(things: Things, is_renewed: bool) -> None:
    await things.add("a", "1")
    lease = await leased(things.queue())
    await things.pass_time(LEASE_SECONDS - 10)
    assert await things.queue().lease() is None
    if is_renewed:
        assert await things.queue().renew(lease)
    await things.pass_time(10)
    current = await things.queue().lease()
    assert (current and current.attempts) == (None if is_renewed else 2)


ENDS: Mapping[str, Callable[[Queue, Lease[str]], Coroutine[Any, Any, bool | None]]] = {
    "finish": lambda queue, lease: queue.finish(lease, {"color": "late"}),
    "repeat": lambda queue, lease: queue.repeat(lease, 0, {"color": "late"}),
    "retry": lambda queue, lease: queue.retry(lease, {"color": "late"}, 0),
    "release": lambda queue, lease: queue.release(lease),
}


@pytest.mark.parametrize("end", ENDS)
async def test_a_late_holder_changes_nothing(things: Things, end: str) -> None:
    await things.add("a", "1")
    queue = things.queue()
    stale = await leased(queue)
    await things.pass_time(LEASE_SECONDS)
    current = await leased(queue)
    before = await things.find("1")
    assert not await queue.renew(stale)
    assert not await ENDS[end](queue, stale)
    assert await things.find("1") == before
    assert await queue.finish(current, {"color": "red"})
    assert not await ENDS[end](queue, stale)
    assert ((await things.find("1"))["color"], await things.waiting()) == ("red", 0)


@pytest.mark.parametrize("end", ENDS)
async def test_a_lease_has_no_effect_after_its_end(things: Things, end: str) -> None:
    await things.add("a", "1")
    queue = things.queue()
    lease = await leased(queue)
    await ENDS[end](queue, lease)
    before = await things.find("1")
    assert not await queue.renew(lease)
    assert not await queue.finish(lease, {"color": "twice"})
    assert await things.find("1") == before


async def test_work_that_becomes_due_again_ends_its_lease(things: Things) -> None:
    await things.add("a", "1")
    queue = things.queue()
    lease = await leased(queue)
    await things.make_due("1")
    assert not await queue.finish(lease, {"color": "old"})
    assert (await leased(queue)).attempts == 1


async def test_the_pause_doubles_with_each_failed_attempt(things: Things) -> None:
    await things.add("a", "1")
    queue = things.queue(first_pause=10, longest_pause=25)
    for pause in (10, 20, 25, 25):
        assert await queue.retry(await leased(queue), {"tried": pause})
        await things.pass_time(pause - 5)
        assert await queue.lease() is None
        await things.pass_time(5)
    assert (await leased(queue)).attempts == 5


async def test_work_that_was_given_back_does_not_count_as_an_attempt(things: Things) -> None:
    await things.add("a", "1")
    for _ in range(3):
        lease = await leased(things.queue())
        assert lease.attempts == 1
        await things.queue().release(lease)
    await things.queue().release(await leased(things.queue()), pause=10)
    assert await things.queue().lease() is None


async def test_repeated_work_is_due_again_later(things: Things) -> None:
    await things.add("a", "1")
    queue = things.queue()
    assert await queue.retry(await leased(queue), pause=0)
    assert await queue.repeat(await leased(queue), 100, {"color": "red"})
    await things.pass_time(90)
    assert await queue.lease() is None
    await things.pass_time(10)
    lease = await leased(queue)
    assert (lease.attempts, (await things.find("1"))["color"]) == (1, "red")
    assert await queue.repeat(lease, datetime.now(UTC) - timedelta(seconds=60))
    assert await queue.lease() is not None


async def test_a_delay_applies_to_all_records(things: Things) -> None:
    await things.add("a", "1")
    late = things.queue(delay=100)
    await things.pass_time(90)
    assert await late.lease() is None
    await things.pass_time(10)
    lease = await leased(late)
    assert await late.lease() is None
    assert await late.repeat(lease, 100)
    await things.pass_time(90)
    assert await late.lease() is None
    assert await things.queue(delay=50).lease() is not None


async def test_the_backlog_counts_records_from_when_they_became_due(things: Things) -> None:
    queue = things.queue()
    assert await queue.backlog() == (0, 0)
    await things.add("a", "1", "2")
    await things.pass_time(100)
    await queue.retry(await leased(queue))
    for name in "12":
        await things.make_due(name)
    number, age = await queue.backlog()
    assert (number, round(age, -2)) == (2, 100)


async def test_the_backlog_reads_no_record_but_the_oldest(mongo_url: str, things: Things) -> None:
    await things.add("a", *"1234567890")
    recorded = RecordedCommands("aggregate")
    client: AsyncIOMotorClient[Document] = AsyncIOMotorClient(mongo_url, event_listeners=[recorded], tz_aware=True)
    await Things(client[things.database.name]).queue().backlog()
    client.close()
    (command,) = recorded.commands
    count = {"aggregate": "things", "pipeline": command["pipeline"], "cursor": {}}
    explained = await things.database.command("explain", count, verbosity="executionStats")
    assert "'totalDocsExamined': 0" in str(explained)


async def test_an_index_finds_the_next_record(things: Things) -> None:
    await things.add("a", *"123")
    await leased(things.queue())
    command = {
        "findAndModify": "things",
        "query": {
            "tenant_id": {"$gt": "", "$nin": []},
            **is_waiting(KIND),
            "$expr": {"$lte": [f"$work.{KIND}.due", {"$add": ["$$NOW", 0]}]},
        },
        "sort": {"tenant_id": 1, f"work.{KIND}.due": 1},
        "update": [{"$set": {"x": 1}}],
    }
    explained = await things.database.command("explain", command, verbosity="executionStats")
    statistics = explained["executionStats"]
    assert (statistics["nReturned"], statistics["totalDocsExamined"]) == (1, 1)


class Painter:
    """A handler: paints, or fails as told. `started` are the names in their order."""

    def __init__(self, queue: Queue, failures: Mapping[str, BaseException] | None = None) -> None:
        self.queue = queue
        self.failures = dict(failures or {})
        self.started: list[str] = []
        self.most_at_once = 0
        self.released = asyncio.Event()
        self.released.set()
        self._now: list[str] = []

    async def paint(self, lease: Lease[str]) -> None:
        self.started.append(lease.record)
        self._now.append(lease.record)
        self.most_at_once = max(self.most_at_once, len(self._now))
        try:
            await self.released.wait()
            if failure := self.failures.get(lease.record):
                raise failure
            await self.queue.finish(lease, {"color": "red"})
        finally:
            self._now.remove(lease.record)

    def worker(self, **options: Any) -> Worker[str]:
        return Worker(self.queue, self.paint, **options)

    async def has_started(self, count: int) -> None:
        async def enough() -> bool:
            return len(self.started) >= count

        await until(enough)


async def test_many_workers_do_all_work_once(things: Things) -> None:
    await things.add("a", *"12345")
    await things.add("b", *"6789")
    painter = Painter(things.queue())
    await asyncio.gather(*(painter.worker(limit=2).run_due() for _ in range(4)))
    assert (sorted(painter.started), await things.waiting()) == (list("123456789"), 0)


async def test_tenants_take_turns_and_their_longest_due_records_come_first(things: Things) -> None:
    await things.add("c", *"123")
    await things.add("a", "4", "5")
    await things.add("b", "6")
    await things.add("d", "7")
    painter = Painter(things.queue())
    await painter.worker(skip=lambda: {"d"}).run_due()
    assert painter.started == ["4", "6", "1", "5", "2", "3"]


@pytest.mark.parametrize(("one_per_tenant", "at_once"), [(True, ["1", "4"]), (False, ["1", "4", "2"])])
async def test_a_worker_starts_up_to_its_limit_and_one_of_each_tenant_if_asked(
    things: Things, one_per_tenant: bool, at_once: list[str]
) -> None:
    await things.add("a", *"123")
    await things.add("b", "4")
    painter = Painter(things.queue())
    painter.released.clear()
    doing = asyncio.create_task(painter.worker(limit=3, one_per_tenant=one_per_tenant).run_due())
    await painter.has_started(len(at_once))
    assert painter.started == at_once
    painter.released.set()
    await doing
    assert painter.started == ["1", "4", "2", "3"]
    assert painter.most_at_once == len(at_once)


@pytest.mark.parametrize("failure", [ValueError("wrong"), Unavailable("away")])
async def test_a_failed_record_waits_and_delays_no_other(things: Things, failure: Exception) -> None:
    await things.add("a", "1", "2")
    painter = Painter(things.queue(first_pause=10), {"1": failure})
    with capture_logs() as logs:
        await painter.worker().run_due()
        await painter.worker().run_due()
    assert painter.started == ["1", "2"]
    assert [(entry["name"], entry["tenant_id"]) for entry in logs] == [(KIND, "a")]
    painter.failures.clear()
    await things.pass_time(10)
    await painter.worker().run_due()
    assert (painter.started, await things.waiting()) == (["1", "2", "1"], 0)


async def test_postponed_work_ends_the_round_and_counts_no_attempt(things: Things) -> None:
    await things.add("a", "1", "2")
    painter = Painter(things.queue(), dict.fromkeys("12", Postponed("no_color", 600, color="red")))
    worker = painter.worker(limit=2)
    with capture_logs() as logs:
        await worker.run_due()
        await worker.run_due()
    assert logs == [{"event": "no_color", "color": "red", "log_level": "warning"}]
    assert painter.started == ["1", "2"]
    painter.failures.clear()
    await painter.worker().run_due()
    assert (sorted(painter.started), await things.waiting()) == (list("1122"), 0)


async def test_work_of_a_killed_process_is_done_after_its_lease(things: Things) -> None:
    await things.add("a", "1")
    killed, other = Painter(things.queue(), {"1": Killed()}), Painter(things.queue())
    await killed.worker().run_due()
    await other.worker().run_due()
    assert other.started == []
    await things.pass_time(LEASE_SECONDS)
    await other.worker().run_due()
    assert (other.started, await things.waiting()) == (["1"], 0)


async def test_a_worker_that_stops_gives_its_work_back_at_once(things: Things) -> None:
    await things.add("a", "1", "2")
    stopped, other = Painter(things.queue()), Painter(things.queue())
    stopped.released.clear()
    async with stopped.worker(limit=2).running():
        await stopped.has_started(2)
    await other.worker().run_due()
    assert (sorted(other.started), await things.waiting()) == (["1", "2"], 0)


async def test_a_worker_that_stops_without_its_database_stops(things: Things, monkeypatch: pytest.MonkeyPatch) -> None:
    await things.add("a", "1")
    painter = Painter(things.queue())
    painter.released.clear()
    monkeypatch.setattr(painter.queue, "release", AsyncMock(side_effect=AutoReconnect("away")))
    with capture_logs() as logs:
        async with painter.worker().running():
            await painter.has_started(1)
    assert [entry["event"] for entry in logs] == ["lease_not_ended"]
    await things.pass_time(LEASE_SECONDS)
    assert await things.queue().lease() is not None


async def test_work_longer_than_its_lease_is_not_repeated(things: Things) -> None:
    await things.add("a", "1")
    slow = Painter(things.queue(lease_seconds=0.2))
    slow.released.clear()
    other = Painter(things.queue())
    async with slow.worker(pause=0.01).running():
        await slow.has_started(1)
        renewed = (await things.find("1"))["work"][KIND]["due"]

        async def is_renewed() -> bool:
            return bool((await things.find("1"))["work"][KIND]["due"] > renewed + timedelta(seconds=0.4))

        await until(is_renewed)
        await other.worker().run_due()
        slow.released.set()

        async def is_done() -> bool:
            return await things.waiting() == 0

        await until(is_done)
    assert (slow.started, other.started) == (["1"], [])


async def test_a_handler_may_end_its_lease_before_it_returns(things: Things, monkeypatch: pytest.MonkeyPatch) -> None:
    await things.add("a", "1")
    queue = things.queue(lease_seconds=0.06)
    renew, renewals = queue.renew, list[bool]()

    async def record_renewal(lease: Lease[str]) -> bool:
        renewals.append(await renew(lease))
        return renewals[-1]

    async def has_not_renewed() -> bool:
        return renewals.count(False) > 1

    async def finish_early(lease: Lease[str]) -> None:
        await queue.finish(lease)
        await until(has_not_renewed)
        await things.collection.update_one({}, {"$set": {"color": "red"}})

    monkeypatch.setattr(queue, "renew", record_renewal)
    await Worker(queue, finish_early).run_due()
    assert (await things.find("1"))["color"] == "red"


async def test_a_handler_that_lost_its_lease_is_cancelled(things: Things) -> None:
    await things.add("a", "1")
    slow = Painter(things.queue(lease_seconds=0.06))
    slow.released.clear()
    doing = asyncio.create_task(slow.worker().run_due())
    await slow.has_started(1)
    await things.collection.update_one({}, {"$set": {"is_gone": True}})
    await doing
    assert "color" not in await things.find("1")


async def test_work_starts_when_the_worker_is_woken_and_at_each_interval(
    things: Things, monkeypatch: pytest.MonkeyPatch
) -> None:
    painter, looked = Painter(things.queue()), asyncio.Event()
    lease = painter.queue.lease

    async def look(*arguments: Any) -> Lease[str] | None:
        try:
            return await lease(*arguments)
        finally:
            looked.set()

    monkeypatch.setattr(painter.queue, "lease", look)
    worker = painter.worker(pause=3600)
    async with worker.running():
        await looked.wait()  # The first round has found nothing.
        await things.add("a", "1")
        worker.wake()
        await painter.has_started(1)
    async with painter.worker(pause=0.01).running():
        await things.add("a", "2")
        await painter.has_started(2)


async def test_a_worker_survives_an_outage_of_its_database(things: Things, monkeypatch: pytest.MonkeyPatch) -> None:
    await things.add("a", "1")
    painter = Painter(things.queue())
    outage = AsyncMock(side_effect=AutoReconnect("away"))
    with capture_logs() as logs, monkeypatch.context() as away:
        away.setattr(painter.queue, "lease", outage)
        async with painter.worker(pause=0.01).running():

            async def was_tried() -> bool:
                return outage.await_count > 1

            await until(was_tried)
            away.undo()
            await painter.has_started(1)
    assert {entry["event"] for entry in logs} == {"background_waits"}
