"""Events over RabbitMQ."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
from yarl import URL

from common.errors import Unavailable
from common.events import Count, Event, EventsUnavailable, Handle, Listener, Outcome, handle_event, traced_event
from common.mongo import MongoError, WriteRejected
from common.telemetry import log
from common.telemetry.metrics import Metrics

SYSTEM = "rabbitmq"
MAX_DELIVERIES = 5
RETRY_PAUSE = 1  # seconds
EXCHANGE = "uploads"
DEAD_EXCHANGE = "uploads.dead"
# For ephemeral listeners: with their queues at `EXCHANGE`, an event without subscribers would count as stored.
LIVE_EXCHANGE = "uploads.live"
LIVE_LIMIT = 1000  # events that wait for one listener; the oldest are dropped
DELIVERIES = 100  # by the broker, whatever their result: an event that kills its process each time must end, too
PUBLISH_TIMEOUT = 5  # seconds
CLOSE_TIMEOUT = 1  # seconds
HEARTBEAT = 10  # seconds; the connection ends after two without an answer
BROKER_ERRORS = (aio_pika.exceptions.AMQPError, OSError, RuntimeError)


@dataclass(frozen=True)
class Subscriber:
    """One of the subscribers that share a queue."""

    queue: str
    event_type: str
    handle: Handle
    count: Count


async def process_delivery(
    message: AbstractIncomingMessage, subscriber: Subscriber, closed: Callable[[], bool]
) -> None:
    """Handle an event that the broker delivers; one that is invalid or fails repeatedly becomes a dead letter.

    An event that fails while we are being `closed` returns to the queue with the connection.
    """
    queue = subscriber.queue
    try:
        event = Event.decode(message.body)
        if event.type != subscriber.event_type:
            raise ValueError(event.type)
    except (ValueError, KeyError, TypeError):
        log.error("event_unreadable", queue=queue, message_id=message.message_id)
        subscriber.count(Outcome.UNREADABLE)
        await message.reject(requeue=False)
        return
    # Retried here and not by redelivery: the broker counts a lost connection as a delivery, too.
    for _ in range(MAX_DELIVERIES):
        try:
            await _handle_when_available(subscriber.handle, event, closed)
        except Exception as error:  # noqa: BLE001  any error is a failure of the event
            if closed():
                return  # The failure may be ours.
            log.error("event_failed", queue=queue, event_id=event.event_id, exc_info=error)
        else:
            subscriber.count(Outcome.HANDLED)
            await message.ack()
            return
    subscriber.count(Outcome.FAILED)
    await message.reject(requeue=False)


async def _handle_when_available(handle: Handle, event: Event, closed: Callable[[], bool]) -> None:
    """Handle an event, and wait for stores and services that are away: that is no failure of the event."""
    while True:
        try:
            return await handle_event(handle, event, SYSTEM)
        except (MongoError, Unavailable) as error:
            if closed() or isinstance(error, WriteRejected):
                raise
            log.warning("event_waits", event_id=event.event_id, error=type(error).__name__)
            await asyncio.sleep(RETRY_PAUSE)


class RabbitEvents:
    """A durable topic exchange, a quorum queue per subscriber name, publisher confirms.

    An event that fails 5 times goes to the queue `<name>.dead`, an invalid one at once. An event waits while a store is
    away. Closed connections, channels and consumers are opened again. The broker counts each such end as a delivery of
    the waiting events, and closes a channel whose event waits for half an hour. At 100 deliveries an event is dead;
    that is two days without the store.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._publishing = AsyncExitStack()
        self._channel: AbstractChannel | None = None
        self._opening = asyncio.Lock()
        self._subscribing: set[asyncio.Task[None]] = set()
        self._consuming_now = 0
        self._closed = False

    @property
    def missing_consumers(self) -> int:
        """The number of subscribers and listeners that are not connected to the broker now."""
        return len(self._subscribing) - self._consuming_now

    async def publish(self, event: Event) -> None:
        with traced_event(event, SYSTEM) as traced:
            try:
                await self._send(EXCHANGE, traced, aio_pika.DeliveryMode.PERSISTENT, mandatory=True)
            except BROKER_ERRORS as error:
                raise EventsUnavailable("The event was not confirmed by the broker.") from error
            with suppress(*BROKER_ERRORS):  # The event is stored; ephemeral listeners may miss it.
                await self._send(LIVE_EXCHANGE, traced, aio_pika.DeliveryMode.NOT_PERSISTENT, mandatory=False)

    async def _send(self, name: str, event: Event, mode: aio_pika.DeliveryMode, *, mandatory: bool) -> None:
        content_type = "application/cloudevents+json"
        message = aio_pika.Message(
            event.encode(), content_type=content_type, delivery_mode=mode, message_id=event.event_id
        )
        async with asyncio.timeout(PUBLISH_TIMEOUT):
            exchange = await (await self._publishing_channel()).get_exchange(name, ensure=False)
            await exchange.publish(message, event.routing_key, mandatory=mandatory, timeout=PUBLISH_TIMEOUT)

    async def subscribe(self, queue: str, event_type: str, handle: Handle, count: Count = lambda _: None) -> None:
        """Start at once, or as soon as the broker is available."""
        self._start(queue, partial(self._consume, Subscriber(queue, event_type, handle, count)))

    async def listen_ephemeral(self, event_type: str, listener: Listener) -> None:
        """Start at once, or as soon as the broker is available."""
        self._start(LIVE_EXCHANGE, partial(self._listen, event_type, listener))

    def _start(self, queue: str, consume: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(self._repeat(queue, consume))
        self._subscribing.add(task)
        task.add_done_callback(self._subscribing.discard)

    async def close(self) -> None:
        self._closed = True
        for task in self._subscribing:
            task.cancel()
        await asyncio.gather(*self._subscribing, return_exceptions=True)
        await self._publishing.aclose()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AbstractConnection]:
        # The library's reconnecting connection may come back without its consumers, without an error.
        connection = aio_pika.Connection(URL(self._url).update_query(heartbeat=HEARTBEAT))
        try:
            await connection.connect(timeout=PUBLISH_TIMEOUT)
            yield connection
        finally:
            with suppress(*BROKER_ERRORS):
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await connection.close()
            # After a timeout the library would otherwise close it during garbage collection.
            await connection.close()

    async def _publishing_channel(self) -> AbstractChannel:
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                self._channel = None
                await self._publishing.aclose()
                connection = await self._publishing.enter_async_context(self._connection())
                # Without on_return_raises an event that no queue takes would count as published.
                channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
                for name in (EXCHANGE, LIVE_EXCHANGE):
                    await channel.declare_exchange(name, aio_pika.ExchangeType.TOPIC, durable=True)
                self._channel = channel
            return self._channel

    async def _repeat(self, queue: str, consume: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await consume()
                log.warning("consumer_gone", queue=queue)
            except BROKER_ERRORS as error:
                log.warning("broker_unavailable", queue=queue, error=type(error).__name__)
            await asyncio.sleep(RETRY_PAUSE)

    @asynccontextmanager
    async def _consuming(self) -> AsyncIterator[AbstractChannel]:
        """A channel; at its end the block waits until the channel or its queue is gone."""
        async with self._connection() as connection:
            channel, gone = await connection.channel(), asyncio.Event()
            channel.close_callbacks.add(lambda *_: gone.set())
            underlay = await channel.get_underlay_channel()
            underlay.on_consumer_cancel_callbacks.add(lambda _: gone.set())
            yield channel
            self._consuming_now += 1
            try:
                await gone.wait()
            finally:
                self._consuming_now -= 1

    async def _consume(self, subscriber: Subscriber) -> None:
        """Handle events until the connection, the channel or the queue is gone."""

        async def process(message: AbstractIncomingMessage) -> None:
            with suppress(*BROKER_ERRORS):  # Without our answer the broker delivers it again.
                await process_delivery(message, subscriber, lambda: self._closed)

        async with self._consuming() as channel:
            await channel.set_qos(prefetch_count=32)
            await (await _declare(channel, subscriber.queue, subscriber.event_type)).consume(process)

    async def _listen(self, event_type: str, listener: Listener) -> None:
        """Call the listener until the connection, the channel or the queue is gone."""

        async def receive(message: AbstractIncomingMessage) -> None:
            with suppress(ValueError, KeyError, TypeError):  # Its subscriber logs the error.
                listener(Event.decode(message.body))

        async with self._consuming() as channel:
            exchange = await channel.declare_exchange(LIVE_EXCHANGE, aio_pika.ExchangeType.TOPIC, durable=True)
            live_queue = await channel.declare_queue(exclusive=True, arguments={"x-max-length": LIVE_LIMIT})
            await live_queue.bind(exchange, f"{event_type}.#")
            await live_queue.consume(receive, no_ack=True)


async def _declare(channel: AbstractChannel, queue: str, event_type: str) -> AbstractQueue:
    """Declare the queue of a subscriber and the queue of its dead letters."""
    exchange = await channel.declare_exchange(EXCHANGE, aio_pika.ExchangeType.TOPIC, durable=True)
    dead = await channel.declare_exchange(DEAD_EXCHANGE, aio_pika.ExchangeType.DIRECT, durable=True)
    dead_queue = await channel.declare_queue(f"{queue}.dead", durable=True, arguments={"x-queue-type": "quorum"})
    await dead_queue.bind(dead, queue)
    declared = await channel.declare_queue(
        queue,
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": DELIVERIES - 1,  # The broker counts redeliveries only.
            "x-dead-letter-exchange": DEAD_EXCHANGE,
            "x-dead-letter-routing-key": queue,
        },
    )
    await declared.bind(exchange, f"{event_type}.#")
    return declared


@asynccontextmanager
async def open_events(url: str, metrics: Metrics | None = None) -> AsyncIterator[RabbitEvents]:
    """Events over the broker at `url` (amqp://…); opening does not wait for it. `metrics` get its missing consumers."""
    # The library logs an error per second while the broker is away; we log that ourselves.
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    events = RabbitEvents(url)
    if metrics:
        help_text = "Consumers that should be connected to RabbitMQ and are not."
        name = "pkgrepo_event_consumers_missing"
        metrics.gauge(name, help_text, lambda: events.missing_consumers, service=metrics.service)
    try:
        yield events
    finally:
        await events.close()
