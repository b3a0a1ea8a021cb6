"""The way of facts where services are processes of their own."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

import aio_pika
from aio_pika.abc import (
    AbstractChannel,
    AbstractConnection,
    AbstractIncomingMessage,
    AbstractQueue,
)
from yarl import URL

from common.errors import Unavailable
from common.events import Count, Event, EventsUnavailable, Handle, Outcome, handled, published, uncounted
from common.mongo import MongoError, Refused
from common.telemetry import log

SYSTEM = "rabbitmq"
EXCHANGE = "uploads"
DEAD_EXCHANGE = "uploads.dead"
FAILURES = 5
DELIVERIES = 100  # by the broker, whatever became of them: an event that ends its process each time ends as well
PUBLISH_PATIENCE = 5  # seconds
CLOSE_PATIENCE = 1  # seconds
RETRY_PAUSE = 1  # seconds
HEARTBEAT = 10  # seconds; a broker that is silent for two of them is gone
BROKER_TROUBLE = (aio_pika.exceptions.AMQPError, OSError, RuntimeError)


@dataclass(frozen=True)
class _Subscriber:
    queue: str
    event_type: str
    handle: Handle
    count: Count


class RabbitEvents:
    """Facts over RabbitMQ: a durable topic exchange, a quorum queue per subscriber name, publisher confirms.

    An event that fails 5 times goes to the queue `<name>.dead`, what is none of ours at once; while a store is away
    it waits. Whatever ends a connection, a channel or a consumer, it is made anew. The broker counts each such end as
    a delivery of the events that waited, and itself ends the channel of one that waits for half an hour: at 100
    deliveries, of which a store that is away for two days takes all, an event is dead as well.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._publishing = AsyncExitStack()
        self._channel: AbstractChannel | None = None
        self._opening = asyncio.Lock()
        self._subscribing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def publish(self, event: Event) -> None:
        with published(event, SYSTEM) as traced:
            await self._publish(traced)

    async def _publish(self, event: Event) -> None:
        message = aio_pika.Message(
            event.encode(),
            content_type="application/cloudevents+json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=event.event_id,
        )
        try:
            async with asyncio.timeout(PUBLISH_PATIENCE):
                exchange = await (await self._publishing_channel()).get_exchange(EXCHANGE, ensure=False)
                await exchange.publish(message, event.routing_key, mandatory=True, timeout=PUBLISH_PATIENCE)
        except BROKER_TROUBLE as error:
            raise EventsUnavailable("The event was not confirmed by the broker.") from error

    async def subscribe(self, queue: str, event_type: str, handle: Handle, count: Count = uncounted) -> None:
        """Begin at once where the broker is there, else as soon as it is."""
        task = asyncio.create_task(self._subscribe(_Subscriber(queue, event_type, handle, count)))
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
        # The library's own reconnecting connection may come back without its consumers, and tells nobody.
        connection = aio_pika.Connection(URL(self._url).update_query(heartbeat=HEARTBEAT))
        try:
            await connection.connect(timeout=PUBLISH_PATIENCE)
            yield connection
        finally:
            with suppress(*BROKER_TROUBLE):
                async with asyncio.timeout(CLOSE_PATIENCE):
                    await connection.close()
            # Where that was cut short the library would go on with it whenever the memory is collected.
            await connection.close()

    async def _publishing_channel(self) -> AbstractChannel:
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                self._channel = None
                await self._publishing.aclose()
                connection = await self._publishing.enter_async_context(self._connection())
                # Without on_return_raises an event that no queue takes would count as published.
                channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
                await channel.declare_exchange(EXCHANGE, aio_pika.ExchangeType.TOPIC, durable=True)
                self._channel = channel
            return self._channel

    async def _subscribe(self, subscriber: _Subscriber) -> None:
        while True:
            try:
                await self._consume(subscriber)
            except BROKER_TROUBLE as error:
                log.warning("broker_unavailable", queue=subscriber.queue, error=type(error).__name__)
            await asyncio.sleep(RETRY_PAUSE)

    async def _consume(self, subscriber: _Subscriber) -> None:
        """Handle events until the connection, the channel or the queue is gone."""
        async with self._connection() as connection:
            channel, gone = await connection.channel(), asyncio.Event()
            channel.close_callbacks.add(lambda *_: gone.set())
            underlay = await channel.get_underlay_channel()
            underlay.on_consumer_cancel_callbacks.add(lambda _: gone.set())
            await channel.set_qos(prefetch_count=32)
            declared = await _declare(channel, subscriber.queue, subscriber.event_type)

            async def take(message: AbstractIncomingMessage) -> None:
                with suppress(*BROKER_TROUBLE):  # What it does not hear of our answer, it delivers again.
                    await self._take(message, subscriber)

            await declared.consume(take)
            await gone.wait()
        log.warning("consumer_gone", queue=subscriber.queue)

    async def _take(self, message: AbstractIncomingMessage, subscriber: _Subscriber) -> None:
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
        # Tried again here, not delivered again: the broker does not tell a failure from a lost connection.
        for _ in range(FAILURES):
            try:
                await self._patiently(subscriber.handle, event)
            except Exception as error:  # noqa: BLE001  whatever it was, it is the event's failure
                if self._closed:
                    return  # Or ours: with the connection the event goes back to the queue.
                log.error("event_failed", queue=queue, event_id=event.event_id, exc_info=error)
            else:
                subscriber.count(Outcome.HANDLED)
                await message.ack()
                return
        subscriber.count(Outcome.FAILED)
        await message.reject(requeue=False)

    async def _patiently(self, handle: Handle, event: Event) -> None:
        """Handle an event. A store or a service that is away is waited for: that is no fault of the event's."""
        while True:
            try:
                return await handled(handle, event, SYSTEM)
            except (MongoError, Unavailable) as error:
                if self._closed or isinstance(error, Refused):
                    raise
                log.warning("event_waits", event_id=event.event_id, error=type(error).__name__)
                await asyncio.sleep(RETRY_PAUSE)


async def _declare(channel: AbstractChannel, queue: str, event_type: str) -> AbstractQueue:
    """The queue of a subscriber, and where its dead letters go."""
    exchange = await channel.declare_exchange(EXCHANGE, aio_pika.ExchangeType.TOPIC, durable=True)
    dead = await channel.declare_exchange(DEAD_EXCHANGE, aio_pika.ExchangeType.DIRECT, durable=True)
    dead_queue = await channel.declare_queue(f"{queue}.dead", durable=True, arguments={"x-queue-type": "quorum"})
    await dead_queue.bind(dead, queue)
    declared = await channel.declare_queue(
        queue,
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": DELIVERIES - 1,  # The broker counts what comes after the first.
            "x-dead-letter-exchange": DEAD_EXCHANGE,
            "x-dead-letter-routing-key": queue,
        },
    )
    await declared.bind(exchange, f"{event_type}.#")
    return declared


@asynccontextmanager
async def open_events(url: str) -> AsyncIterator[RabbitEvents]:
    """Facts over the broker at `url` (amqp://…); opening does not wait for it."""
    # The library writes an error a second while the broker is away; what that means for us we say ourselves.
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    events = RabbitEvents(url)
    try:
        yield events
    finally:
        await events.close()
