"""What every way for facts to travel promises, in one process and over RabbitMQ."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import aio_pika
import pytest

from common.errors import Unavailable
from common.events import Event, Events, EventsUnavailable, Outcome
from common.events.broker import RabbitEvents, open_events
from common.events.deliveries import MAX_DELIVERIES
from common.events.local import LocalEvents
from common.mongo import WriteRejected
from common.telemetry.tracing import traces
from tests.support.servers.otlp_server import run_collector
from tests.support.tables import each

TIMEOUT = 60  # seconds after which a test has failed


def make_event(event_type: str, **data: Any) -> Event:
    return Event(uuid4().hex, event_type, "tests", "acme", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), data)


def make_name() -> str:
    return f"test.{uuid4().hex[:8]}"


@asynccontextmanager
async def rabbit_queue(url: str, name: str) -> AsyncIterator[aio_pika.abc.AbstractQueue]:
    """A queue that is there already, as the broker's own client sees it."""
    async with await aio_pika.connect(url, timeout=TIMEOUT) as connection:
        channel = await connection.channel()
        yield await channel.get_queue(name)


async def publish(events: Events, event: Event) -> None:
    """Publish as the outbox does: again until it is kept."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                await events.publish(event)
            except EventsUnavailable:
                await asyncio.sleep(0.05)
            else:
                return


class Heard:
    """A handler that remembers."""

    def __init__(self, *, failures: int = 0) -> None:
        self.events: list[Event] = []
        self._failures = failures
        self._news = asyncio.Condition()

    async def handle(self, event: Event) -> None:
        async with self._news:
            self.events.append(event)
            self._news.notify_all()
        if len(self.events) <= self._failures:
            raise ValueError("a handler that fails")

    async def until(self, enough: Callable[[list[Event]], bool]) -> None:
        async with asyncio.timeout(TIMEOUT), self._news:
            await self._news.wait_for(lambda: enough(self.events))


@pytest.fixture(params=["local", "rabbitmq"])
async def events(request: pytest.FixtureRequest, rabbitmq_url: str) -> AsyncIterator[Events]:
    if request.param == "local":
        yield LocalEvents()
    else:
        async with open_events(rabbitmq_url) as rabbit:
            yield rabbit


async def test_an_events_handling_belongs_to_the_trace_of_its_request(
    events: Events,
) -> None:
    heard, name = Heard(), make_name()
    async with run_collector() as collector:
        traces.begin("tests", collector.url)
        try:
            with traces.request_span("POST"):
                event = replace(make_event(name), traceparent=traces.traceparent)
            await events.subscribe(name, name, heard.handle)
            await publish(events, event)
            await heard.until(bool)
        finally:
            await asyncio.to_thread(traces.end)
    spans = {span.name: span for span in collector.spans if not span.error}
    assert heard.events[0].traceparent not in {event.traceparent, ""}
    assert [span.name for span in collector.ancestors(spans[f"process {name}"])] == [
        f"process {name}",
        f"publish {name}",
        "POST",
    ]


async def test_an_event_reaches_its_handler_as_it_was(events: Events) -> None:
    heard, name, counted = Heard(), make_name(), list[Outcome]()
    await events.subscribe(name, name, heard.handle, counted.append)
    event = make_event(name, size=2**40, text="grün")
    await publish(events, event)
    await heard.until(bool)
    assert heard.events == [event]
    assert counted == [Outcome.HANDLED]


async def test_every_queue_hears_every_event_of_its_type(events: Events) -> None:
    one, two, other = Heard(), Heard(), Heard()
    name, other_name = make_name(), make_name()
    await events.subscribe(f"{name}.one", name, one.handle)
    await events.subscribe(f"{name}.two", name, two.handle)
    await events.subscribe(other_name, other_name, other.handle)
    marks = [make_event(name, number=number) for number in range(3)]
    for mark in marks:
        await publish(events, mark)
    # A queue that joined later than another may have missed the first of them; it hears what is published now.
    last = make_event(name, number=9)
    async with asyncio.timeout(TIMEOUT):
        while last not in one.events or last not in two.events:
            await publish(events, last)
            await asyncio.sleep(0.05)
    assert other.events == []


async def test_everyone_who_overhears_is_told_of_every_event_that_comes_by(events: Events) -> None:
    one, other, stranger, name = list[Event](), list[Event](), list[Event](), make_name()
    await events.subscribe(name, name, Heard().handle)
    await events.listen_ephemeral(name, one.append)
    await events.listen_ephemeral(name, other.append)
    await events.listen_ephemeral(make_name(), stranger.append)
    event = make_event(name, size=2**40)
    async with asyncio.timeout(TIMEOUT):
        while event not in one or event not in other:  # Who began later has missed the first.
            await publish(events, event)
            await asyncio.sleep(0.05)
    assert stranger == []


async def test_an_event_that_is_only_overheard_is_not_kept(events: Events) -> None:
    heard, overheard, name, other = Heard(), list[Event](), make_name(), make_name()
    await events.subscribe(name, name, heard.handle)
    for event_type in (name, other):
        await events.listen_ephemeral(event_type, overheard.append)
    async with asyncio.timeout(TIMEOUT):
        while not overheard:
            await publish(events, make_event(name))
            await asyncio.sleep(0.05)
    with pytest.raises(EventsUnavailable):
        await events.publish(make_event(other))


async def test_over_rabbitmq_a_listener_goes_on_after_a_lost_connection(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.events.broker.RETRY_PAUSE", 0.01)
    heard, overheard, name = Heard(), list[Event](), make_name()
    lost = make_event(name)
    last = make_event(name)
    opened: list[aio_pika.Connection] = []
    connect = aio_pika.Connection.connect

    async def remembered(connection: aio_pika.Connection, *given: Any, **options: Any) -> None:
        opened.append(connection)
        await connect(connection, *given, **options)

    monkeypatch.setattr("aio_pika.Connection.connect", remembered)
    async with open_events(rabbitmq_url) as events, asyncio.timeout(TIMEOUT):
        await events.listen_ephemeral(name, overheard.append)
        await events.subscribe(name, name, heard.handle)
        while lost not in overheard:
            await publish(events, lost)
            await asyncio.sleep(0.05)
        for connection in tuple(opened):  # Others are opened in their place meanwhile.
            await connection.transport.connection.close(OSError("lost"))  # type: ignore[union-attr]
        while last not in overheard:
            await publish(events, last)
            await asyncio.sleep(0.05)


async def test_an_event_that_nobody_takes_is_not_kept(events: Events) -> None:
    with pytest.raises(EventsUnavailable):
        await events.publish(make_event(make_name()))


async def test_a_handler_that_fails_sees_the_event_again(events: Events) -> None:
    heard, name = Heard(failures=2), make_name()
    await events.subscribe(name, name, heard.handle)
    event = make_event(name)
    await publish(events, event)
    await heard.until(lambda seen: len(seen) == 3)
    assert heard.events == [event] * 3


async def test_in_one_process_the_publisher_hears_that_a_handler_failed() -> None:
    events, heard, counted = LocalEvents(), Heard(failures=1), list[Outcome]()
    await events.subscribe("q", "t", heard.handle, counted.append)
    with pytest.raises(EventsUnavailable):
        await events.publish(make_event("t"))
    assert counted == [Outcome.FAILED]


async def test_over_rabbitmq_an_event_that_always_fails_is_dead_lettered(rabbitmq_url: str) -> None:
    heard, name, counted = Heard(failures=100), make_name(), list[Outcome]()
    event = make_event(name)
    async with open_events(rabbitmq_url) as events:
        await events.subscribe(name, name, heard.handle, counted.append)
        await publish(events, event)
        await heard.until(lambda seen: len(seen) == MAX_DELIVERIES)
        async with rabbit_queue(rabbitmq_url, f"{name}.dead") as dead:
            message = await taken(dead)
    assert Event.decode(message.body) == event
    assert len(heard.events) == MAX_DELIVERIES
    assert counted == [Outcome.FAILED]


async def test_over_rabbitmq_attempts_count_across_consumers(rabbitmq_url: str) -> None:
    heard, name = Heard(failures=100), make_name()
    event = make_event(name)
    async with open_events(rabbitmq_url) as one, open_events(rabbitmq_url) as other:
        await one.subscribe(name, name, heard.handle)
        await other.subscribe(name, name, heard.handle)
        await publish(one, event)
        async with rabbit_queue(rabbitmq_url, f"{name}.dead") as dead:
            message = await taken(dead)
    assert Event.decode(message.body) == event
    assert heard.events == [event] * MAX_DELIVERIES


async def test_over_rabbitmq_a_waiting_event_outlives_its_consumers(rabbitmq_url: str) -> None:
    heard, name = Heard(), make_name()
    event = make_event(name)
    for number in range(MAX_DELIVERIES + 2):
        waits = asyncio.Event()

        async def wait(_: Event, waits: asyncio.Event = waits) -> None:
            waits.set()
            raise Unavailable("The database does not answer.")

        async with open_events(rabbitmq_url) as consumer, asyncio.timeout(TIMEOUT):
            await consumer.subscribe(name, name, wait)
            if not number:
                await publish(consumer, event)
            await waits.wait()
    async with open_events(rabbitmq_url) as events:
        await events.subscribe(name, name, heard.handle)
        await heard.until(bool)
    assert heard.events == [event]


async def test_over_rabbitmq_the_next_consumer_handles_an_interrupted_event(
    rabbitmq_url: str,
) -> None:
    failing, next_one, name = Heard(failures=1), Heard(), make_name()
    event = make_event(name)
    async with open_events(rabbitmq_url) as stopping:

        async def stop_and_fail(event: Event) -> None:
            stopping._closed = True  # The first that stopping does; what the handler needs may be gone by now.
            await failing.handle(event)

        await stopping.subscribe(name, name, stop_and_fail)
        await publish(stopping, event)
        await failing.until(bool)
    async with open_events(rabbitmq_url) as events:
        await events.subscribe(name, name, next_one.handle)
        await next_one.until(bool)
    assert (failing.events, next_one.events) == ([event], [event])


async def test_over_rabbitmq_an_event_waits_for_a_store_that_is_away(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.events.deliveries.RETRY_PAUSE", 0.01)
    tries, name = 3 * MAX_DELIVERIES, make_name()
    heard = Heard()

    async def handle(event: Event) -> None:
        nonlocal tries
        tries -= 1
        if tries:
            raise Unavailable("The database does not answer.")
        await heard.handle(event)

    event = make_event(name)
    async with open_events(rabbitmq_url) as events:
        await events.subscribe(name, name, handle)
        await publish(events, event)
        await heard.until(lambda seen: seen == [event])


async def taken(queue: aio_pika.abc.AbstractQueue) -> aio_pika.abc.AbstractIncomingMessage:
    """The next message of a queue, once it is there."""
    async with asyncio.timeout(TIMEOUT), queue.iterator() as messages:
        message = await anext(messages)
        await message.ack()
        return message


async def test_over_rabbitmq_a_message_that_is_no_event_is_dead_lettered_at_once(rabbitmq_url: str) -> None:
    heard, name, counted = Heard(), make_name(), list[Outcome]()
    async with open_events(rabbitmq_url) as events:
        await events.subscribe(name, name, heard.handle, counted.append)
        await publish(events, make_event(name))
        async with rabbit_queue(rabbitmq_url, f"{name}.dead") as dead:
            await dead.channel.default_exchange.publish(aio_pika.Message(b"poison"), name)
            message = await taken(dead)
    assert message.body == b"poison"
    assert len(heard.events) == 1
    assert sorted(counted) == [Outcome.HANDLED, Outcome.UNREADABLE]


async def test_over_rabbitmq_an_event_is_kept_until_its_handler_is_back(rabbitmq_url: str) -> None:
    heard, name = Heard(), make_name()
    async with open_events(rabbitmq_url) as early:
        await early.subscribe(name, name, Heard().handle)
        await publish(early, make_event(name))
    event = make_event(name)
    async with open_events(rabbitmq_url) as events:
        await publish(events, event)
        await events.subscribe(name, name, heard.handle)
        await heard.until(lambda seen: event in seen)


@pytest.fixture
async def nobody() -> str:
    """The address of a broker that is away."""
    return "amqp://guest:guest@127.0.0.1:1/"


async def test_while_the_broker_is_away_publishing_fails_and_closing_works(nobody: str) -> None:
    async with open_events(nobody) as events:
        await events.subscribe("q", "t", Heard().handle)
        for _ in range(3):
            with pytest.raises(EventsUnavailable):
                await events.publish(make_event("t"))


async def test_a_broker_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.events.broker.PUBLISH_TIMEOUT", 0.2)
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with open_events(f"amqp://guest:guest@127.0.0.1:{port}/") as events:
        with pytest.raises(EventsUnavailable):
            await events.publish(make_event("t"))
    for writer in held:
        writer.close()
    server.close()
    await server.wait_closed()


async def test_publishing_goes_on_after_the_connection_was_lost(rabbitmq_url: str) -> None:
    heard, name = Heard(), make_name()
    async with open_events(rabbitmq_url) as events:
        await events.subscribe(name, name, heard.handle)
        await publish(events, make_event(name))
        await lose(events)
        event = make_event(name)
        await publish(events, event)
        await heard.until(lambda seen: event in seen)


async def lose(events: RabbitEvents) -> None:
    """Break the publisher's connection under its feet."""
    channel = await events._publishing_channel()
    await (await channel.get_underlay_channel()).connection.close(OSError("lost"))


async def test_over_rabbitmq_an_event_of_another_type_is_dead_lettered_at_once(rabbitmq_url: str) -> None:
    heard, name = Heard(), make_name()
    other = make_event(f"{name}.other")
    async with open_events(rabbitmq_url) as events:
        await events.subscribe(name, name, heard.handle)
        await publish(events, other)
        async with rabbit_queue(rabbitmq_url, f"{name}.dead") as dead:
            message = await taken(dead)
    assert Event.decode(message.body) == other
    assert heard.events == []


async def test_over_rabbitmq_an_event_that_the_store_refuses_is_not_waited_for(rabbitmq_url: str) -> None:
    name = make_name()

    async def refuse(_: Event) -> None:
        raise WriteRejected("BSONObj size is invalid", 10334)

    event = make_event(name)
    async with open_events(rabbitmq_url) as events:
        await events.subscribe(name, name, refuse)
        await publish(events, event)
        async with rabbit_queue(rabbitmq_url, f"{name}.dead") as dead:
            message = await taken(dead)
    assert Event.decode(message.body) == event


async def test_over_rabbitmq_a_subscriber_declares_a_deleted_queue_again(rabbitmq_url: str) -> None:
    heard, name = Heard(), make_name()
    async with open_events(rabbitmq_url) as events:
        await events.subscribe(name, name, heard.handle)
        await publish(events, make_event(name))
        async with rabbit_queue(rabbitmq_url, name) as queue:
            await queue.delete(if_unused=False, if_empty=False)
        event = make_event(name)
        await publish(events, event)
        await heard.until(lambda seen: event in seen)


def test_an_event_survives_its_encoding() -> None:
    event = make_event("t", a=[1, None, "x"])
    assert Event.decode(event.encode()) == event


@each("body", [b"", b"[]", b"{}", b'"x"', b"\xff", b'{"data": 1}', make_event("t").encode().replace(b"2026-", b"x")])
def test_what_is_no_event_is_refused(body: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Event.decode(body)


async def test_a_broker_that_is_away_leaves_no_connection_to_be_closed_later() -> None:
    async with open_events("amqp://guest:guest@127.0.0.1:1/") as events:
        with pytest.raises(EventsUnavailable):
            await events.publish(make_event("upload.finished"))
    # Asked for its type and not by `isinstance`, which other libraries' proxies answer for somebody else.
    left = [one for one in gc.get_objects() if issubclass(type(one), aio_pika.Connection) and one.url.port == 1]
    assert all(connection.is_closed for connection in left)
