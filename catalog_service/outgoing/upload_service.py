"""upload_service as seen from here: it keeps the files of our versions."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any

from catalog_service.model.packages import InstallerFile
from catalog_service.versions.damaged import DamagedFile
from common.auth.callers import Caller
from common.service_client.client import ServiceClient

RELEASE_BATCH = 100  # versions whose files are removed by one question
CONCURRENT_RELEASES = 4  # questions at once
REMOVAL_TIMEOUT = 25.0  # seconds
INSPECTION_TIMEOUT = 30.0  # seconds
NAMES_BATCH = 1000  # files in one question


class UploadService:
    """Claims and releases installer files, and tells which are free, which are damaged, and what they say."""

    def __init__(self, service: ServiceClient) -> None:
        self._service = service

    async def claim(self, caller: Caller, server_filename: str, version_uid: str) -> InstallerFile:
        """Link a file to a version; claiming it again for the same version changes nothing.

        Raises:
            Answered: 404 `installer_not_found`, unknown or another version's; 407 `storage_exceeded`.
            Unavailable: upload_service does not answer.
        """
        answer = await self._service.json(
            caller, "claim_installer", {"server_filename": server_filename, "version_uid": version_uid}
        )
        return InstallerFile(
            size=answer["size"],
            sha256=answer["sha256"],
            product_code=answer.get("product_code", ""),
            upgrade_code=answer.get("upgrade_code", ""),
            package_family_name=answer.get("package_family_name", ""),
            signature_sha256=answer.get("signature_sha256", ""),
        )

    async def inspect(self, caller: Caller, server_filename: str) -> Mapping[str, Any]:
        """What a file says of itself, under the names of the form's fields; it is inspected now if it was not before.

        Raises:
            Answered: 404 `installer_not_found`.
            Unavailable: upload_service does not answer, or not yet.
        """
        question = {"server_filename": server_filename}
        answer: Mapping[str, Any] = await self._service.json(
            caller, "inspect_installer", question, timeout=INSPECTION_TIMEOUT
        )
        return answer

    async def release(self, caller: Caller, version_uids: Sequence[str]) -> None:
        """Delete the files of these versions; those that are gone already do not matter. Raises Unavailable."""
        slices = [
            list(version_uids[start : start + RELEASE_BATCH]) for start in range(0, len(version_uids), RELEASE_BATCH)
        ]
        for first in range(0, len(slices), CONCURRENT_RELEASES):
            await asyncio.gather(*(self._release(caller, uids) for uids in slices[first : first + CONCURRENT_RELEASES]))

    async def unclaimed(self, caller: Caller, server_filenames: Sequence[str]) -> Set[str]:
        """Which of these files are there and belong to nothing. Raises Unavailable."""
        found: set[str] = set()
        for start in range(0, len(server_filenames), NAMES_BATCH):
            question = {"server_filenames": server_filenames[start : start + NAMES_BATCH]}
            found |= set((await self._service.json(caller, "unclaimed_installers", question))["server_filenames"])
        return found

    async def damaged(self, caller: Caller) -> Sequence[DamagedFile]:
        """The tenant's damaged files. Raises Unavailable."""
        answer = await self._service.json(caller, "damaged_installers")
        return [
            DamagedFile(**{**file, "found_at": datetime.fromisoformat(file["found_at"])})
            for file in answer["installers"]
        ]

    async def _release(self, caller: Caller, version_uids: Sequence[str]) -> None:
        question = {"version_uids": version_uids}
        await self._service.json(caller, "release_installers", question, timeout=REMOVAL_TIMEOUT)
