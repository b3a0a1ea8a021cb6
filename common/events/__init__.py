"""Facts that travel from one service to others: over RabbitMQ (`broker`), or inside one process (`local`).

Publishing returns once the fact is kept; a handler may see a fact twice and must change nothing the second time.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, Self

import orjson

from common.errors import Unavailable
from common.telemetry import log, of_request
from common.telemetry.tracing import TRACEPARENT, traces

Handle = Callable[["Event"], Awaitable[None]]
Listener = Callable[["Event"], None]


class Outcome(StrEnum):
    """What became of an event at a subscriber."""

    HANDLED = "handled"
    FAILED = "failed"
    UNREADABLE = "unreadable"


Count = Callable[[Outcome], None]


def ignore(_: Outcome) -> None:
    """Count nothing."""


@dataclass(frozen=True)
class Event:
    """A CloudEvents 1.0 event of one tenant. `data` holds what JSON can.

    `request_id` is that of the request which made it a fact: the extension attribute `requestid`. `traceparent` names
    what it is a part of in that request's trace, as the extension for distributed tracing has it.
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
            request_id=str(message.get("requestid", "")),
            traceparent=str(message.get(TRACEPARENT, "")),
        )


class EventsUnavailable(Unavailable):
    """The event was not kept: the broker is away, full, or nobody listens yet. Publish it again later."""


class Events(Protocol):
    """A way for facts to travel."""

    async def publish(self, event: Event) -> None:
        """Hand an event over; once this returns it will reach every subscriber. Raises EventsUnavailable."""

    async def subscribe(self, queue: str, event_type: str, handle: Handle, count: Count = ignore) -> None:
        """Have every event of a type handled, one of the subscribers of a `queue` name each.

        `count` is told what became of each.
        """

    async def listen_ephemeral(self, event_type: str, hear: Listener) -> None:
        """Tell `hear` of every event of a type that comes by from now on, whoever else is told.

        Nothing is kept for it, and an event that is only overheard does not count as published.
        """


@contextmanager
def published(event: Event, system: str) -> Iterator[Event]:
    """Publish an event within the block: as it is to be sent, so that its handling is a part of that in its trace."""
    with traces.publish_span(system, event.type, event.traceparent) as span:
        yield replace(event, traceparent=span.traceparent) if span.traceparent else event


async def handled(handle: Handle, event: Event, system: str) -> None:
    """Handle an event as part of the request that it comes from; `system` is what brought it."""
    with of_request(event.request_id), traces.process_span(system, event.type, event.traceparent):
        await handle(event)
        log.info("event_handled", type=event.type, event_id=event.event_id, tenant_id=event.tenant_id)
