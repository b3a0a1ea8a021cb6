"""Events from one service to others, over RabbitMQ (`broker`) or inside one process (`LocalEvents`).

`publish` returns once the event is stored. A handler may get an event twice and must change nothing the second time.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, Self

import orjson

from common.errors import Unavailable
from common.telemetry import TRACEPARENT, log, of_request, traces

Handle = Callable[["Event"], Awaitable[None]]
Listener = Callable[["Event"], None]
IN_PROCESS = "in_process"


class Outcome(StrEnum):
    """The result of an event at a subscriber."""

    HANDLED = "handled"
    FAILED = "failed"
    UNREADABLE = "unreadable"


Count = Callable[[Outcome], None]


@dataclass(frozen=True)
class Event:
    """A CloudEvents 1.0 event of one tenant. `data` holds JSON values.

    `request_id` (extension attribute `requestid`) and `traceparent` (of the extension for distributed tracing) are
    those of the request that caused the event.
    """

    event_id: str
    type: str
    source: str
    tenant_id: str
    time: datetime
    data: dict[str, Any]
    request_id: str = ""
    traceparent: str = ""

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
                **({"requestid": self.request_id} if self.request_id else {}),
                **({TRACEPARENT: self.traceparent} if self.traceparent else {}),
                "data": {"tenant_id": self.tenant_id, **self.data},
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Parse an event. Raises ValueError, KeyError or TypeError."""
        message = orjson.loads(body)
        data = dict(message["data"])
        return cls(
            event_id=str(message["id"]),
            type=str(message["type"]),
            source=str(message["source"]),
            tenant_id=str(data.pop("tenant_id")),
            time=datetime.fromisoformat(message["time"]),
            data=data,
            request_id=str(message.get("requestid", "")),
            traceparent=str(message.get(TRACEPARENT, "")),
        )


class EventsUnavailable(Unavailable):
    """The event was not stored: the broker is away or full, or has no subscriber yet. Publish it again later."""


class Events(Protocol):
    """Publishes events and delivers them to subscribers."""

    async def publish(self, event: Event) -> None:
        """Publish an event; it will reach every subscriber. Raises EventsUnavailable."""

    async def subscribe(self, queue: str, event_type: str, handle: Handle, count: Count = lambda _: None) -> None:
        """Handle every event of a type; subscribers of one `queue` name share them. `count` gets each outcome."""

    async def listen_ephemeral(self, event_type: str, listener: Listener) -> None:
        """Call `listener` with every event of a type from now on.

        No event is stored for a listener, and an event without other subscribers does not count as published.
        """


@contextmanager
def traced_event(event: Event, system: str) -> Iterator[Event]:
    """The event to publish within the block, with the trace context of its publication."""
    with traces.publish_span(system, event.type, event.traceparent) as span:
        yield replace(event, traceparent=span.traceparent) if span.traceparent else event


async def handle_event(handle: Handle, event: Event, system: str) -> None:
    """Handle an event with the request id and the trace of its request; `system` delivered it."""
    with of_request(event.request_id), traces.process_span(system, event.type, event.traceparent):
        await handle(event)
        log.info("event_handled", type=event.type, event_id=event.event_id, tenant_id=event.tenant_id)


class LocalEvents:
    """Delivers events at once. If a handler fails, `publish` fails, and the publisher tries again later."""

    def __init__(self) -> None:
        self._handlers: dict[str, dict[str, tuple[Handle, Count]]] = {}
        self._listeners: dict[str, list[Listener]] = {}

    async def publish(self, event: Event) -> None:
        handlers = self._handlers.get(event.type, {})
        if not handlers:
            raise EventsUnavailable(f"Nobody listens for {event.type} yet.")
        with traced_event(event, IN_PROCESS) as traced:
            for queue, (handle, count) in handlers.items():
                try:
                    await handle_event(handle, traced, IN_PROCESS)
                except Exception as error:
                    count(Outcome.FAILED)
                    log.error("event_failed", queue=queue, event_id=event.event_id, exc_info=error)
                    raise EventsUnavailable(f"{queue} could not take the event.") from error
                count(Outcome.HANDLED)
            for listener in self._listeners.get(event.type, ()):
                listener(traced)

    async def subscribe(self, queue: str, event_type: str, handle: Handle, count: Count = lambda _: None) -> None:
        self._handlers.setdefault(event_type, {})[queue] = handle, count

    async def listen_ephemeral(self, event_type: str, listener: Listener) -> None:
        self._listeners.setdefault(event_type, []).append(listener)
