"""The promises of every event transport, in one process and over RabbitMQ."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import aio_pika
import pytest
from yarl import URL

from common.errors import Unavailable
from common.events import Event, Events, EventsUnavailable, LocalEvents, Outcome
from common.events.broker import MAX_DELIVERIES, open_events
from common.mongo import WriteRejected
from common.telemetry import traces
from common.telemetry.metrics import Metrics
from tests.support.servers.otlp_server import run_collector
from tests.support.servers.proxy import Mode, run_proxy
from tests.support.tables import each
from tests.support.wait import until

TIMEOUT = 60  # seconds until a test fails


def make_event(event_type: str, **data: Any) -> Event:
    return Event(uuid4().hex, event_type, "tests", "acme", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), data)


def make_name() -> str:
    return f"test.{uuid4().hex[:8]}"


@asynccontextmanager
async def rabbit_queue(url: str, name: str) -> AsyncIterator[aio_pika.abc.AbstractQueue]:
    """An existing queue, opened by the broker's own client."""
    async with await aio_pika.connect(url, timeout=TIMEOUT) as connection:
        channel = await connection.channel()
        yield await channel.get_queue(name)


async def publish(events: Events, event: Event) -> None:
    """Publish like the outbox: retry until the event is accepted."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                await events.publish(event)
            except EventsUnavailable:
                await asyncio.sleep(0.05)
            else:
                return


class RecordingHandler:
    """A handler that records its events."""

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


async def test_an_event_handler_belongs_to_the_trace_of_its_request(
    events: Events,
) -> None:
    handler, name = RecordingHandler(), make_name()
    async with run_collector() as collector:
        traces.begin("tests", collector.url)
        try:
            with traces.request_span("POST"):
                event = replace(make_event(name), traceparent=traces.traceparent)
            await events.subscribe(name, name, handler.handle)
            await publish(events, event)
            await handler.until(bool)
        finally:
            await asyncio.to_thread(traces.end)
    spans = {span.name: span for span in collector.spans if not span.error}
    assert handler.events[0].traceparent not in {event.traceparent, ""}
    assert [span.name for span in collector.ancestors(spans[f"process {name}"])] == [
        f"process {name}",
        f"publish {name}",
        "POST",
    ]


async def test_an_event_reaches_its_handler_unchanged(events: Events) -> None:
    handler, name, outcomes = RecordingHandler(), make_name(), list[Outcome]()
    await events.subscribe(name, name, handler.handle, outcomes.append)
    event = make_event(name, size=2**40, text="grün")
    await publish(events, event)
    await handler.until(bool)
    assert handler.events == [event]
    assert outcomes == [Outcome.HANDLED]


async def test_every_queue_receives_every_event_of_its_type(events: Events) -> None:
    first, second, other = RecordingHandler(), RecordingHandler(), RecordingHandler()
    name, other_name = make_name(), make_name()
    await events.subscribe(f"{name}.one", name, first.handle)
    await events.subscribe(f"{name}.two", name, second.handle)
    await events.subscribe(other_name, other_name, other.handle)
    marks = [make_event(name, number=number) for number in range(3)]
    for mark in marks:
        await publish(events, mark)
    # A queue that joined later may have missed the first events; it receives the next ones.
    last = make_event(name, number=9)
    async with asyncio.timeout(TIMEOUT):
        while last not in first.events or last not in second.events:
            await publish(events, last)
            await asyncio.sleep(0.05)
    assert other.events == []


async def test_every_ephemeral_listener_receives_every_event(events: Events) -> None:
    first, second, other_type, name = list[Event](), list[Event](), list[Event](), make_name()
    await events.subscribe(name, name, RecordingHandler().handle)
    await events.listen_ephemeral(name, first.append)
    await events.listen_ephemeral(name, second.append)
    await events.listen_ephemeral(make_name(), other_type.append)
    event = make_event(name, size=2**40)
    async with asyncio.timeout(TIMEOUT):
        while event not in first or event not in second:  # A later listener has missed the first event.
            await publish(events, event)
            await asyncio.sleep(0.05)
    assert other_type == []


async def test_an_event_with_ephemeral_listeners_only_is_not_stored(events: Events) -> None:
    handler, listened, name, other = RecordingHandler(), list[Event](), make_name(), make_name()
    await events.subscribe(name, name, handler.handle)
    for event_type in (name, other):
        await events.listen_ephemeral(event_type, listened.append)
    async with asyncio.timeout(TIMEOUT):
        while not listened:
            await publish(events, make_event(name))
            await asyncio.sleep(0.05)
    with pytest.raises(EventsUnavailable):
        await events.publish(make_event(other))


async def test_over_rabbitmq_all_survive_lost_connections(rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.events.broker.RETRY_PAUSE", 0.01)
    handler, listened, name = RecordingHandler(), list[Event](), make_name()
    lost, last = make_event(name), make_event(name)
    opened: list[aio_pika.Connection] = []
    connect = aio_pika.Connection.connect

    async def record_connection(connection: aio_pika.Connection, *arguments: Any, **options: Any) -> None:
        opened.append(connection)
        await connect(connection, *arguments, **options)

    monkeypatch.setattr("aio_pika.Connection.connect", record_connection)
    async with open_events(rabbitmq_url) as events, asyncio.timeout(TIMEOUT):
        await events.listen_ephemeral(name, listened.append)
        await events.subscribe(name, name, handler.handle)
        while lost not in listened:
            await publish(events, lost)
            await asyncio.sleep(0.05)
        for connection in tuple(opened):  # New queues take their place meanwhile.
            await connection.transport.connection.close(OSError("lost"))  # type: ignore[union-attr]
        while last not in listened or last not in handler.events:
            await publish(events, last)
            await asyncio.sleep(0.05)


async def test_an_event_without_a_consumer_is_not_accepted(events: Events) -> None:
    with pytest.raises(EventsUnavailable):
        await events.publish(make_event(make_name()))


async def test_a_failed_handler_receives_the_event_again(events: Events) -> None:
    handler, name = RecordingHandler(failures=2), make_name()
    await events.subscribe(name, name, handler.handle)
    event = make_event(name)
    await publish(events, event)
    await handler.until(lambda events_seen: len(events_seen) == 3)
    assert handler.events == [event] * 3


async def test_in_one_process_a_failed_handler_is_reported_to_the_publisher() -> None:
    events, handler, outcomes = LocalEvents(), RecordingHandler(failures=1), list[Outcome]()
    await events.subscribe("q", "t", handler.handle, outcomes.append)
    with pytest.raises(EventsUnavailable):
        await events.publish(make_event("t"))
    assert outcomes == [Outcome.FAILED]


@pytest.mark.parametrize("consumers", [1, 2])
async def test_over_rabbitmq_an_event_that_always_fails_is_dead_lettered(rabbitmq_url: str, consumers: int) -> None:
    handler, name, outcomes = RecordingHandler(failures=100), make_name(), list[Outcome]()
    event = make_event(name)
    async with AsyncExitStack() as stack:
        for _ in range(consumers):
            events = await stack.enter_async_context(open_events(rabbitmq_url))
            await events.subscribe(name, name, handler.handle, outcomes.append)
        await publish(events, event)
        assert Event.decode(await dead_letter(rabbitmq_url, name)) == event
    assert handler.events == [event] * MAX_DELIVERIES
    assert outcomes == [Outcome.FAILED]


@pytest.mark.parametrize("refused", ["another type", "the store"])
async def test_over_rabbitmq_an_event_that_cannot_be_handled_is_dead_lettered(rabbitmq_url: str, refused: str) -> None:
    name, handled = make_name(), list[Event]()
    event = make_event(f"{name}.other" if refused == "another type" else name)

    async def refuse(event: Event) -> None:
        handled.append(event)
        raise WriteRejected("BSONObj size is invalid", 10334)

    async with open_events(rabbitmq_url) as events:
        await events.subscribe(name, name, refuse)
        await publish(events, event)
        assert Event.decode(await dead_letter(rabbitmq_url, name)) == event
    assert handled == ([] if refused == "another type" else [event] * MAX_DELIVERIES)


async def test_over_rabbitmq_a_waiting_event_outlives_its_consumers(rabbitmq_url: str) -> None:
    handler, name = RecordingHandler(), make_name()
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
        await events.subscribe(name, name, handler.handle)
        await handler.until(bool)
    assert handler.events == [event]


async def test_over_rabbitmq_the_next_consumer_handles_an_interrupted_event(
    rabbitmq_url: str,
) -> None:
    failing, next_one, name = RecordingHandler(failures=1), RecordingHandler(), make_name()
    event = make_event(name)
    async with open_events(rabbitmq_url) as stopping:

        async def stop_and_fail(event: Event) -> None:
            stopping._closed = True  # Stopping closes this first; resources of the handler may be closed already.
            await failing.handle(event)

        await stopping.subscribe(name, name, stop_and_fail)
        await publish(stopping, event)
        await failing.until(bool)
    async with open_events(rabbitmq_url) as events:
        await events.subscribe(name, name, next_one.handle)
        await next_one.until(bool)
    assert (failing.events, next_one.events) == ([event], [event])


async def test_over_rabbitmq_an_event_waits_for_an_unavailable_store(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.events.broker.RETRY_PAUSE", 0.01)
    tries, name = 3 * MAX_DELIVERIES, make_name()
    handler = RecordingHandler()

    async def handle(event: Event) -> None:
        nonlocal tries
        tries -= 1
        if tries:
            raise Unavailable("The database does not answer.")
        await handler.handle(event)

    event = make_event(name)
    async with open_events(rabbitmq_url) as events:
        await events.subscribe(name, name, handle)
        await publish(events, event)
        await handler.until(lambda events_seen: events_seen == [event])


async def dead_letter(url: str, name: str) -> bytes:
    """The next dead letter of a queue, after it arrives."""
    async with rabbit_queue(url, f"{name}.dead") as queue, asyncio.timeout(TIMEOUT), queue.iterator() as messages:
        message = await anext(messages)
        await message.ack()
        return message.body


async def test_over_rabbitmq_an_invalid_message_is_dead_lettered_at_once(rabbitmq_url: str) -> None:
    handler, name, outcomes = RecordingHandler(), make_name(), list[Outcome]()
    async with open_events(rabbitmq_url) as events:
        await events.subscribe(name, name, handler.handle, outcomes.append)
        await publish(events, make_event(name))
        async with rabbit_queue(rabbitmq_url, name) as queue:
            await queue.channel.default_exchange.publish(aio_pika.Message(b"poison"), name)
        assert await dead_letter(rabbitmq_url, name) == b"poison"
    assert len(handler.events) == 1
    assert sorted(outcomes) == [Outcome.HANDLED, Outcome.UNREADABLE]


async def test_over_rabbitmq_an_event_is_stored_until_its_handler_returns(rabbitmq_url: str) -> None:
    handler, name = RecordingHandler(), make_name()
    async with open_events(rabbitmq_url) as early:
        await early.subscribe(name, name, RecordingHandler().handle)
        await publish(early, make_event(name))
    event = make_event(name)
    async with open_events(rabbitmq_url) as events:
        await publish(events, event)
        await events.subscribe(name, name, handler.handle)
        await handler.until(lambda events_seen: event in events_seen)


async def test_a_broker_that_never_answers_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.events.broker.PUBLISH_TIMEOUT", 0.2)
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with open_events(f"amqp://guest:guest@127.0.0.1:{port}/") as events:
        with pytest.raises(EventsUnavailable):
            await events.publish(make_event("t"))
    for writer in writers:
        writer.close()
    server.close()
    await server.wait_closed()


async def test_consumers_without_a_broker_are_counted(rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.events.broker.RETRY_PAUSE", 0.05)
    address, name, metrics = URL(rabbitmq_url), make_name(), Metrics("catalog_service")

    async def missing() -> float:
        families = {family.name: family for family in await metrics.collect()}
        (sample,) = families["pkgrepo_event_consumers_missing"].samples
        assert sample.labels == {"service": "catalog_service"}
        return sample.value

    async with run_proxy(f"{address.host}:{address.port}") as proxy:
        through_proxy = str(address.with_host("127.0.0.1").with_port(proxy.port))
        async with open_events(through_proxy, metrics) as events:
            await events.subscribe(name, name, RecordingHandler().handle)
            await events.listen_ephemeral(name, lambda _: None)
            for mode, expected in ((Mode.PASS, 0), (Mode.REFUSE, 2), (Mode.PASS, 0)):
                await proxy.set_mode(mode)

                async def has_changed(number: int = expected) -> bool:
                    return await missing() == number

                await until(has_changed)


async def test_over_rabbitmq_a_subscriber_declares_a_deleted_queue_again(rabbitmq_url: str) -> None:
    handler, name = RecordingHandler(), make_name()
    async with open_events(rabbitmq_url) as events:
        await events.subscribe(name, name, handler.handle)
        await publish(events, make_event(name))
        async with rabbit_queue(rabbitmq_url, name) as queue:
            await queue.delete(if_unused=False, if_empty=False)
        event = make_event(name)
        await publish(events, event)
        await handler.until(lambda events_seen: event in events_seen)


@each("body", [b"", b"[]", b"{}", b'"x"', b"\xff", b'{"data": 1}', make_event("t").encode().replace(b"2026-", b"x")])
def test_an_invalid_event_is_refused(body: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Event.decode(body)


async def test_without_a_broker_publishing_fails_and_no_connection_stays() -> None:
    async with open_events("amqp://guest:guest@127.0.0.1:1/") as events:
        await events.subscribe("q", "t", RecordingHandler().handle)
        for _ in range(3):
            with pytest.raises(EventsUnavailable):
                await events.publish(make_event("t"))
    # `isinstance` would also match the proxies of other libraries.
    connections = [
        value for value in gc.get_objects() if issubclass(type(value), aio_pika.Connection) and value.url.port == 1
    ]
    assert all(connection.is_closed for connection in connections)
