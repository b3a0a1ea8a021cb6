"""The upload service as seen from here: it has the files of releases."""

from collections.abc import Sequence

from client_registry.model import Installer
from common.auth.callers import Caller
from common.service_client.client import ServiceClient


class UploadService:
    """Claims and releases files. Raises Answered with what the service refuses, Unavailable where it is away."""

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    async def claim_installer(self, caller: Caller, server_filename: str, uid: str) -> Installer:
        """Link an uploaded file to a release; again with the same uid: the same answer.

        Refused with 404 `installer_not_found` or 407 `storage_exceeded`.
        """
        answer = await self._client.json(
            caller, "claim_installer", {"server_filename": server_filename, "version_uid": uid}
        )
        return Installer(server_filename, answer["size"], answer["sha256"])

    async def release_installers(self, caller: Caller, uids: Sequence[str]) -> None:
        """Delete the files linked to these releases, where there are any."""
        await self._client.json(caller, "release_installers", {"version_uids": list(uids)})
