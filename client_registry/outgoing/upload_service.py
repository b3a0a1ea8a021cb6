"""Calls upload_service, which stores the files of releases."""

from collections.abc import Sequence

from common.auth.internal_tokens import Caller
from common.service_client.client import ServiceClient


class UploadService:
    """Claims and releases files. Raises UpstreamProblem for a refusal, Unavailable if the service does not answer."""

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    async def claim_installer(self, caller: Caller, server_filename: str, uid: str) -> tuple[int, str]:
        """Link an uploaded file to a release; returns its size in bytes and its SHA-256.

        Safe to repeat with the same uid. Refused with 404 `installer_not_found` or 407 `storage_exceeded`.
        """
        body = {"server_filename": server_filename, "version_uid": uid}
        answer = await self._client.json(caller, "claim_installer", body)
        return answer["size"], answer["sha256"]

    async def release_installers(self, caller: Caller, uids: Sequence[str]) -> None:
        """Delete the files that are linked to these releases, if any."""
        await self._client.json(caller, "release_installers", {"version_uids": list(uids)})
