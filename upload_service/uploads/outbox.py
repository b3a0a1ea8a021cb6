"""Announces complete uploads: their record is the message, and the work stays until the broker has confirmed it."""

from dataclasses import dataclass
from datetime import UTC, datetime

from common.events import Event, Events, EventsUnavailable
from common.telemetry import log
from common.work import Lease, Postponed, WorkQueue
from upload_service.model import InstallerMissing, Status, StorageKind, Upload
from upload_service.storage.filesystem import FolderStorage

PUBLISHERS = 9  # events that are published at once
FINISHED = "upload.finished"


@dataclass(frozen=True)
class Outbox:
    """Publishes complete uploads. A process that dies may leave an event published twice, with the same id."""

    queue: WorkQueue[Upload]
    events: Events
    folder: FolderStorage

    async def announce(self, lease: Lease[Upload]) -> None:
        """Publish the event of an upload. Raises Postponed if the broker is not available."""
        await self._finalize(lease.record)
        try:
            await self.events.publish(finished_event(lease.record, datetime.now(UTC)))
        except EventsUnavailable:
            raise Postponed("announcements_waiting") from None
        await self.queue.finish(lease)

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
