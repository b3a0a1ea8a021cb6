"""What becomes of an event that a broker delivers: it is handled, waits for what is away, or is dead."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from common.errors import Unavailable
from common.events import Count, Event, Handle, Outcome, handled
from common.mongo import MongoError, Refused
from common.telemetry import log

FAILURES = 5
RETRY_PAUSE = 1  # seconds


class Message(Protocol):
    """What the broker delivers, and takes back or not."""

    body: bytes
    message_id: str | None

    def ack(self) -> Awaitable[None]: ...

    def reject(self, requeue: bool = ...) -> Awaitable[None]: ...


@dataclass(frozen=True)
class Subscriber:
    """One of those that share a queue."""

    queue: str
    event_type: str
    handle: Handle
    count: Count


async def process_delivery(message: Message, subscriber: Subscriber, system: str, closed: Callable[[], bool]) -> None:
    """Have an event handled that `system` delivers; one that comes to nothing goes to the dead letters.

    Whatever fails once we are `closed` goes back to the queue, with the connection.
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
    # Tried again here, not delivered again: the broker does not tell a failure from a lost connection.
    for _ in range(FAILURES):
        try:
            await _patiently(subscriber.handle, event, system, closed)
        except Exception as error:  # noqa: BLE001  whatever it was, it is the event's failure
            if closed():
                return  # Or ours.
            log.error("event_failed", queue=queue, event_id=event.event_id, exc_info=error)
        else:
            subscriber.count(Outcome.HANDLED)
            await message.ack()
            return
    subscriber.count(Outcome.FAILED)
    await message.reject(requeue=False)


async def _patiently(handle: Handle, event: Event, system: str, closed: Callable[[], bool]) -> None:
    """Handle an event. A store or a service that is away is waited for: that is no fault of the event's."""
    while True:
        try:
            return await handled(handle, event, system)
        except (MongoError, Unavailable) as error:
            if closed() or isinstance(error, Refused):
                raise
            log.warning("event_waits", event_id=event.event_id, error=type(error).__name__)
            await asyncio.sleep(RETRY_PAUSE)
