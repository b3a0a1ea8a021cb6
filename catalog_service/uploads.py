"""upload_service as seen from here: it keeps the files of our versions."""

from collections.abc import Sequence

from catalog_service.model import InstallerFile
from common.caller import Caller
from common.client import ServiceClient


class UploadService:
    """Claims and releases installer files."""

    def __init__(self, service: ServiceClient) -> None:
        self._service = service

    async def claim(self, caller: Caller, server_filename: str, version_uid: str) -> InstallerFile:
        """Link a file to a version; claiming it again for the same version changes nothing.

        Raises:
            Answered: 404 `installer_not_found`, unknown or another version's; 407 `storage_exceeded`.
            Unavailable: upload_service does not answer.
        """
        answer = await self._service.ask(
            caller, "claim_installer", {"server_filename": server_filename, "version_uid": version_uid}
        )
        return InstallerFile(size=answer["size"], sha256=answer["sha256"])

    async def release(self, caller: Caller, version_uids: Sequence[str]) -> None:
        """Delete the files of these versions; those that are gone already do not matter. Raises Unavailable."""
        await self._service.ask(caller, "release_installers", {"version_uids": list(version_uids)})
