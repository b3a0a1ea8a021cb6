"""Finished uploads: heard of by announcements, listed until they belong to something or are gone."""

from collections.abc import Sequence, Set
from typing import Protocol

from catalog_service.model.packages import FinishedUpload
from common.auth.callers import Caller


class UploadStore(Protocol):
    async def unlinked(self, tenant_id: str) -> Sequence[FinishedUpload]:
        """The uploads that no version is known to have, the oldest first."""


class Installers(Protocol):
    async def unclaimed(self, caller: Caller, server_filenames: Sequence[str]) -> Set[str]:
        """Which of these files are there and belong to nothing."""


class FinishedUploads:
    """Lists the uploads that a version can be made of."""

    def __init__(self, store: UploadStore, installers: Installers) -> None:
        self._store = store
        self._installers = installers

    async def unassigned(self, caller: Caller) -> Sequence[FinishedUpload]:
        """The oldest first. Raises Unavailable where upload_service does not answer.

        It is asked, because an announcement may be old: files are discarded and collected, and releases have some.
        """
        heard = await self._store.unlinked(caller.tenant_id)
        there = await self._installers.unclaimed(caller, [upload.server_filename for upload in heard])
        return [upload for upload in heard if upload.server_filename in there]
