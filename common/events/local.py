"""The way of facts where all services are one process."""

from common.events import Event, EventsUnavailable, Handle, handled
from common.telemetry import log


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
                await handled(handle, event)
            except Exception as error:
                log.error("event_failed", queue=queue, event_id=event.event_id, exc_info=error)
                raise EventsUnavailable(f"{queue} could not take the event.") from error

    async def subscribe(self, queue: str, event_type: str, handle: Handle) -> None:
        self._handlers.setdefault(event_type, {})[queue] = handle
