"""Events inside one process."""

from common.events import Count, Event, EventsUnavailable, Handle, Listener, Outcome, handle_event, traced_event
from common.telemetry import log

SYSTEM = "in_process"


class LocalEvents:
    """Delivers events at once. If a handler fails, `publish` fails, and the publisher tries again later."""

    def __init__(self) -> None:
        self._handlers: dict[str, dict[str, tuple[Handle, Count]]] = {}
        self._listeners: dict[str, list[Listener]] = {}

    async def publish(self, event: Event) -> None:
        handlers = self._handlers.get(event.type, {})
        if not handlers:
            raise EventsUnavailable(f"Nobody listens for {event.type} yet.")
        with traced_event(event, SYSTEM) as traced:
            for queue, (handle, count) in handlers.items():
                try:
                    await handle_event(handle, traced, SYSTEM)
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
