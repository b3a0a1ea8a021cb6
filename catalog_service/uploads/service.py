"""Lists finished uploads until a version or a release uses them, or they are deleted."""

from collections.abc import Sequence

from pydantic import TypeAdapter

from catalog_service.model.installers import FinishedUpload
from catalog_service.outgoing.upload_service import UploadService
from catalog_service.uploads.store import MongoUploadStore
from common.auth.internal_tokens import Caller
from common.events import Count, Event, Events

QUEUE = "catalog_service"
UPLOAD_FINISHED = "upload.finished"
_UPLOAD = TypeAdapter(FinishedUpload)


class FinishedUploads:
    """Lists the uploads that a new version can use."""

    def __init__(self, store: MongoUploadStore, installers: UploadService) -> None:
        self._store = store
        self._installers = installers

    async def listen(self, events: Events, count: Count) -> None:
        """Store every upload that is announced from now on. Events may come twice."""
        await events.subscribe(QUEUE, UPLOAD_FINISHED, self._note, count)

    async def unassigned(self, caller: Caller) -> Sequence[FinishedUpload]:
        """Return the oldest first. Raises Unavailable.

        upload_service confirms them, because the events may be outdated: files are deleted, and releases use some.
        """
        uploads = await self._store.unlinked(caller.tenant_id)
        unclaimed = await self._installers.unclaimed(caller, [upload.server_filename for upload in uploads])
        return [upload for upload in uploads if upload.server_filename in unclaimed]

    async def _note(self, event: Event) -> None:
        upload = _UPLOAD.validate_python({**event.data, "finished_at": event.time})
        await self._store.note(event.tenant_id, upload)
