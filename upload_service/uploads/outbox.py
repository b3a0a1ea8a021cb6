"""The outbox: a record with `announced: false` is the message, and stays until the broker has confirmed it."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from common.events import Event, Events, EventsUnavailable
from common.telemetry import log
from upload_service.model import InstallerMissing, Status, StorageKind, Upload
from upload_service.storage.filesystem import FolderStorage
from upload_service.uploads.store import MongoUploadStore

PUBLISHERS = 9  # events that are published at once
FINISHED = "upload.finished"


@dataclass(frozen=True)
class Outbox:
    """Publishes complete uploads. A relay that dies may leave an event published twice, with the same id."""

    store: MongoUploadStore
    events: Events
    folder: FolderStorage
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """End the current `wait`, because an upload is complete."""
        self.wakeup.set()

    async def wait(self, seconds: float) -> None:
        """Wait for `wake`, at most so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wakeup.wait()

    async def relay(self) -> None:
        """Publish all that is not announced; what cannot be published now stays for the next call.

        A record that fails delays no other one; its error is raised at the end.
        """
        self.wakeup.clear()
        slots, unavailable = asyncio.Semaphore(PUBLISHERS), asyncio.Event()
        publications: list[asyncio.Task[None]] = []
        while not unavailable.is_set():
            await slots.acquire()
            upload = await self.store.lease_unannounced()
            if upload is None:
                break
            publication = asyncio.create_task(self._publish(upload, unavailable))
            publication.add_done_callback(lambda _: slots.release())
            publications.append(publication)
        await asyncio.gather(*publications)
        if unavailable.is_set():
            log.warning("announcements_waiting")

    async def _publish(self, upload: Upload, unavailable: asyncio.Event) -> None:
        """Publish the event of an upload; set `unavailable` if the broker is not available."""
        await self._finalize(upload)
        try:
            await self.events.publish(finished_event(upload, datetime.now(UTC)))
        except EventsUnavailable:
            unavailable.set()
        else:
            await self.store.mark_announced(upload)

    async def _finalize(self, upload: Upload) -> None:
        """Give a file its name if the process that completed it died before."""
        if upload.storage is StorageKind.FOLDER and upload.status is not Status.DELETING:
            try:
                await self.folder.finalize(upload)
            except InstallerMissing:  # It is announced all the same; the scrub reports a lost file.
                log.warning("file_to_name_missing", tenant_id=upload.tenant_id, upload_id=upload.upload_id)


def finished_event(upload: Upload, now: datetime) -> Event:
    """The event of a complete upload."""
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
