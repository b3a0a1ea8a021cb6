"""The way of facts where all services are one process."""

from collections.abc import Mapping

from common.events import Count, Event, EventsUnavailable, Handle, Listener, Outcome, handled, ignore, published
from common.telemetry import log

SYSTEM = "in_process"


class LocalEvents:
    """Facts inside one process. The publisher hears of a handler that fails, and publishes again later."""

    def __init__(self) -> None:
        self._handlers: dict[str, dict[str, tuple[Handle, Count]]] = {}
        self._hearing: dict[str, list[Listener]] = {}

    async def publish(self, event: Event) -> None:
        handlers = self._handlers.get(event.type, {})
        if not handlers:
            raise EventsUnavailable(f"Nobody listens for {event.type} yet.")
        with published(event, SYSTEM) as traced:
            await self._hand_over(traced, handlers)
            for hear in self._hearing.get(event.type, ()):
                hear(traced)

    async def _hand_over(self, event: Event, handlers: Mapping[str, tuple[Handle, Count]]) -> None:
        for queue, (handle, count) in handlers.items():
            try:
                await handled(handle, event, SYSTEM)
            except Exception as error:
                count(Outcome.FAILED)
                log.error("event_failed", queue=queue, event_id=event.event_id, exc_info=error)
                raise EventsUnavailable(f"{queue} could not take the event.") from error
            count(Outcome.HANDLED)

    async def subscribe(self, queue: str, event_type: str, handle: Handle, count: Count = ignore) -> None:
        self._handlers.setdefault(event_type, {})[queue] = handle, count

    async def listen_ephemeral(self, event_type: str, hear: Listener) -> None:
        self._hearing.setdefault(event_type, []).append(hear)
