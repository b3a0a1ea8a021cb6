"""Announcements: a record that says `announced: false` is the message, and it stays until the broker has confirmed."""

import asyncio
from datetime import UTC, datetime
from typing import Protocol

from common.events import Event, Events, EventsUnavailable
from common.telemetry import log
from upload_service.model import InstallerMissing, Status, StorageKind, Upload
from upload_service.storage.filesystem import FolderStorage

AT_ONCE = 8  # publications
FINISHED = "upload.finished"


class OutboxStore(Protocol):
    """The records as the relay sees them."""

    async def lease_unannounced(self) -> Upload | None:
        """The oldest complete file that nobody has heard of, for this relay alone for a few seconds."""

    async def mark_announced(self, upload: Upload) -> None: ...


class Outbox:
    """Publishes what is complete. An event that is published twice, because a relay died, has the same id."""

    def __init__(self, store: OutboxStore, events: Events, installers: FolderStorage) -> None:
        self._store = store
        self._events = events
        self._installers = installers
        self._complete = asyncio.Event()

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
        first = await self._store.lease_unannounced()
        if first is None:
            return
        published = await asyncio.gather(self._announce_from(first), *(self._announce_more() for _ in range(AT_ONCE)))
        if not all(published):
            log.warning("announcements_waiting")

    async def _announce_more(self) -> bool:
        upload = await self._store.lease_unannounced()
        return upload is None or await self._announce_from(upload)

    async def _announce_from(self, first: Upload) -> bool:
        """Announce until nothing is left, or something cannot be published: the broker may be away."""
        upload: Upload | None = first
        while upload:
            await self._settle(upload)
            try:
                await self._events.publish(finished(upload, datetime.now(UTC)))
            except EventsUnavailable:
                return False
            await self._store.mark_announced(upload)
            upload = await self._store.lease_unannounced()
        return True

    async def _settle(self, upload: Upload) -> None:
        # Whoever completed it may have died before the file had its name.
        if upload.storage is StorageKind.FOLDER and upload.status is not Status.DELETING:
            try:
                await self._installers.finalize(upload)
            except InstallerMissing:  # The fact that it came stays one; the scrub says if it is lost.
                log.warning("file_to_name_missing", tenant_id=upload.tenant_id, upload_id=upload.upload_id)


def finished(upload: Upload, now: datetime) -> Event:
    """The fact that a file is complete."""
    return Event(
        event_id=upload.upload_id,
        type=FINISHED,
        source="upload_service",
        tenant_id=upload.tenant_id,
        time=now,
        data={
            "file_id": upload.original_file_id or upload.file_id,
            "server_filename": upload.server_filename,
            "size": upload.size,
            "sha256": upload.sha256,
        },
        request_id=upload.request_id,
        traceparent=upload.traceparent,
    )
