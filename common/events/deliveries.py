"""Processes events that the broker delivers: they are handled, wait for a dependency, or become dead letters."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from aio_pika.abc import AbstractIncomingMessage

from common.errors import Unavailable
from common.events import Count, Event, Handle, Outcome, handle_event
from common.mongo import MongoError, WriteRejected
from common.telemetry import log

SYSTEM = "rabbitmq"
MAX_DELIVERIES = 5
RETRY_PAUSE = 1  # seconds


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
