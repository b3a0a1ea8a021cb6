"""Facts that travel from one service to others: over RabbitMQ, or inside one process.

Publishing returns once the fact is kept; a handler may see a fact twice and must change nothing the second time.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, Self

import aio_pika
import orjson
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustChannel, AbstractRobustConnection
from yarl import URL

from common.errors import Unavailable
from common.mongo import MongoError
from common.telemetry import log

EXCHANGE = "uploads"
DEAD_EXCHANGE = "uploads.dead"
DELIVERIES = 5
PUBLISH_PATIENCE = 5  # seconds
RETRY_PAUSE = 1  # seconds

Handle = Callable[["Event"], Awaitable[None]]


@dataclass(frozen=True)
class Event:
    """A CloudEvents 1.0 event of one tenant. `data` holds what JSON can."""

    event_id: str
    type: str
    source: str
    tenant_id: str
    time: datetime
    data: dict[str, Any]

    @property
    def routing_key(self) -> str:
        return f"{self.type}.{self.tenant_id}"

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "specversion": "1.0",
                "id": self.event_id,
                "type": self.type,
                "source": self.source,
                "time": self.time,
                "datacontenttype": "application/json",
                "data": {"tenant_id": self.tenant_id, **self.data},
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read an event. Raises ValueError, KeyError or TypeError when it is none of ours."""
        message = orjson.loads(body)
        data = dict(message["data"])
        return cls(
            event_id=str(message["id"]),
            type=str(message["type"]),
            source=str(message["source"]),
            tenant_id=str(data.pop("tenant_id")),
            time=datetime.fromisoformat(message["time"]),
            data=data,
        )


class EventsUnavailable(Unavailable):
    """The event was not kept: the broker is away, full, or nobody listens yet. Publish it again later."""


class Events(Protocol):
    """A way for facts to travel."""

    async def publish(self, event: Event) -> None:
        """Hand an event over; once this returns it will reach every subscriber. Raises EventsUnavailable."""

    async def subscribe(self, queue: str, event_type: str, handle: Handle) -> None:
        """Have every event of a type handled, one of the subscribers of a `queue` name each."""


class LocalEvents:
    """Facts inside one process. The publisher hears of a handler that fails, and publishes again later."""

    def __init__(self) -> None:
        self._handlers: dict[str, dict[str, Handle]] = {}

    async def publish(self, event: Event) -> None:
        handlers = self._handlers.get(event.type, {})
        if not handlers:
            raise EventsUnavailable(f"Nobody listens for {event.type} yet.")
        for queue, handle in handlers.items():
            try:
                await handle(event)
            except Exception as error:
                log.error("event_failed", queue=queue, event_id=event.event_id, exc_info=error)
                raise EventsUnavailable(f"{queue} could not take the event.") from error

    async def subscribe(self, queue: str, event_type: str, handle: Handle) -> None:
        self._handlers.setdefault(event_type, {})[queue] = handle


class RabbitEvents:
    """Facts over RabbitMQ: a durable topic exchange, a quorum queue per subscriber name, publisher confirms.

    An event that fails 5 times goes to the queue `<name>.dead`; while a store is away it waits.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: AbstractRobustConnection | None = None
        self._publisher: AbstractRobustChannel | None = None
        self._opening = asyncio.Lock()
        self._subscribing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def publish(self, event: Event) -> None:
        message = aio_pika.Message(
            event.encode(),
            content_type="application/cloudevents+json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=event.event_id,
        )
        try:
            async with asyncio.timeout(PUBLISH_PATIENCE):
                channel = await self._publishing_channel()
                exchange = await channel.get_exchange(EXCHANGE, ensure=False)
                await exchange.publish(message, event.routing_key, mandatory=True, timeout=PUBLISH_PATIENCE)
        except (aio_pika.exceptions.AMQPError, OSError, RuntimeError) as error:
            raise EventsUnavailable("The event was not confirmed by the broker.") from error

    async def subscribe(self, queue: str, event_type: str, handle: Handle) -> None:
        """Begin at once where the broker is there, else as soon as it is."""
        task = asyncio.create_task(self._subscribe(queue, event_type, handle))
        self._subscribing.add(task)
        task.add_done_callback(self._subscribing.discard)

    async def close(self) -> None:
        self._closed = True
        for task in self._subscribing:
            task.cancel()
        await asyncio.gather(*self._subscribing, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    async def _connected(self) -> AbstractRobustConnection:
        async with self._opening:
            if self._connection is None:
                connection = aio_pika.RobustConnection(URL(self._url), reconnect_interval=RETRY_PAUSE)
                try:
                    await connection.connect(timeout=PUBLISH_PATIENCE)
                except BaseException:
                    await connection.close()  # Else it goes on trying when nobody knows it any more.
                    raise
                self._connection = connection
            return self._connection

    async def _publishing_channel(self) -> AbstractRobustChannel:
        connection = await self._connected()
        async with self._opening:
            if self._publisher is None or self._publisher.is_closed:
                # Without on_return_raises an event that no queue takes would count as published.
                channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
                try:
                    await channel.declare_exchange(EXCHANGE, aio_pika.ExchangeType.TOPIC, durable=True)
                except BaseException:
                    await channel.close()
                    raise
                self._publisher = channel
            return self._publisher

    async def _subscribe(self, queue: str, event_type: str, handle: Handle) -> None:
        while True:
            try:
                await self._consume(queue, event_type, handle)
            except (aio_pika.exceptions.AMQPError, OSError, RuntimeError) as error:
                log.warning("broker_unavailable", queue=queue, error=type(error).__name__)
                await asyncio.sleep(RETRY_PAUSE)
            else:
                return

    async def _consume(self, queue: str, event_type: str, handle: Handle) -> None:
        channel = await (await self._connected()).channel()
        try:
            await self._consume_from(channel, queue, event_type, handle)
        except BaseException:
            await channel.close()
            raise

    async def _consume_from(self, channel: AbstractRobustChannel, queue: str, event_type: str, handle: Handle) -> None:
        await channel.set_qos(prefetch_count=32)
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

        async def take(message: AbstractIncomingMessage) -> None:
            try:
                event = Event.decode(message.body)
            except (ValueError, KeyError, TypeError):
                log.error("event_unreadable", queue=queue, message_id=message.message_id)
                await message.reject(requeue=False)
                return
            try:
                await self._patiently(handle, event)
            except Exception as error:  # noqa: BLE001  whatever it was, the event stays in the queue
                log.error("event_failed", queue=queue, event_id=event.event_id, exc_info=error)
                await message.reject(requeue=True)
            else:
                await message.ack()

        await declared.consume(take)

    async def _patiently(self, handle: Handle, event: Event) -> None:
        """Handle an event. A store or a service that is away is waited for: that is no fault of the event's."""
        while True:
            try:
                return await handle(event)
            except (MongoError, Unavailable) as error:
                if self._closed:
                    raise
                log.warning("event_waits", event_id=event.event_id, error=type(error).__name__)
                await asyncio.sleep(RETRY_PAUSE)


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
