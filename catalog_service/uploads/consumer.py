"""Consumes events of finished uploads. Events may come twice."""

from pydantic import TypeAdapter

from catalog_service.model.packages import FinishedUpload
from catalog_service.uploads.store import MongoUploadStore
from common.events import Count, Event, Events

QUEUE = "catalog_service"
UPLOAD_FINISHED = "upload.finished"
_UPLOAD = TypeAdapter(FinishedUpload)


async def listen(events: Events, uploads: MongoUploadStore, count: Count) -> None:
    """Store every upload that is announced from now on."""

    async def note(event: Event) -> None:
        upload = _UPLOAD.validate_python({**event.data, "finished_at": event.time})
        await uploads.note(event.tenant_id, upload)

    await events.subscribe(QUEUE, UPLOAD_FINISHED, note, count)
