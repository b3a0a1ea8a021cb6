"""Announcements: a record that says `announced: false` is the message, and it stays until the broker has confirmed."""

import asyncio
from datetime import UTC, datetime
from typing import Protocol

from common.events import Event, Events, EventsUnavailable
from common.telemetry import log
from upload_service.model import Upload

BATCH = 100
FINISHED = "upload.finished"


class OutboxStore(Protocol):
    """The records as the relay sees them."""

    async def unannounced(self, limit: int) -> list[Upload]: ...

    async def announced(self, upload: Upload) -> None: ...


class Outbox:
    """Publishes what is complete. Several replicas may publish the same event: its id stays the same."""

    def __init__(self, store: OutboxStore, events: Events) -> None:
        self._store = store
        self._events = events
        self._complete = asyncio.Event()
        self._turn = 0

    def wake(self) -> None:
        """Something is complete; do not wait for the next look."""
        self._complete.set()

    async def wait(self, seconds: float) -> None:
        """Wait until something is complete, or so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._complete.wait()
        except TimeoutError:
            return

    async def relay(self) -> None:
        """Publish what is not announced yet; what cannot be published now stays for the next time."""
        self._complete.clear()
        while waiting := await self._store.unannounced(BATCH):
            # One goes ahead, another each time it fails: a broker that is away is asked once, and an event that
            # nobody can take does not hold up the others.
            ahead = waiting.pop(self._turn % len(waiting))
            results = [await self._announce(ahead)]
            if all(results):
                results += await asyncio.gather(*map(self._announce, waiting))
            if not all(results):
                self._turn += 1
                log.warning("announcements_waiting", at_least=len(waiting) + 1 - results.count(True))
                return

    async def _announce(self, upload: Upload) -> bool:
        try:
            await self._events.publish(finished(upload, datetime.now(UTC)))
        except EventsUnavailable:
            return False
        await self._store.announced(upload)
        return True


def finished(upload: Upload, now: datetime) -> Event:
    """The fact that a file is complete."""
    return Event(
        event_id=upload.upload_id,
        type=FINISHED,
        source="upload_service",
        tenant_id=upload.tenant_id,
        time=now,
        data={
            "file_id": upload.file_id,
            "server_filename": upload.server_filename,
            "size": upload.size,
            "sha256": upload.sha256,
        },
    )
