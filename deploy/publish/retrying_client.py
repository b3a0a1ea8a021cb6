"""The operations of the interface that publishing needs. Transient failures are retried."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from typing import Any
from uuid import uuid4

import stamina
from aiohttp import FormData
from pydantic import BaseModel

from common.errors import UpstreamProblem
from deploy.publish.http_client import HttpClient, MakeBody
from deploy.publish.model import Installer, NewPackage
from deploy.publish.problems import retry_delay

BLOCK = 64 << 10  # bytes of a chunk from one report of the progress to the next


class TransferState(BaseModel):
    """The bytes that the server received, and for a complete transfer the file's name and digest."""

    received: int = 0
    complete: bool = False
    server_filename: str = ""
    sha256: str = ""


class RetryingClient:
    """The public interface. Transient failures are retried for `retry_timeout` seconds."""

    def __init__(self, client: HttpClient, retry_timeout: float) -> None:
        self._client = client
        self._one_installer_a_version: bool | None = None
        self.retrying = stamina.AsyncRetryingCaller(
            attempts=None, timeout=retry_timeout, wait_initial=0.5, wait_max=20.0, wait_jitter=1.0
        ).on(lambda error: retry_delay(error, retry_timeout))

    async def package_ids(self) -> Sequence[str]:
        """The ids of the tenant's active packages."""
        return [row["PACKAGE_ID"] for row in await self._request("POST", "get_packages")]

    async def manifest(self, package_id: str) -> Mapping[str, Any] | None:
        """The winget manifest of a package with all fields of the newest contract; None if winget is not offered it."""
        answer = await self._request("GET", "winget", "packageManifests", package_id, headers={"Version": "1.28.0"})
        return answer["Data"] if answer else None

    async def versions(self, package_id: str) -> Sequence[Mapping[str, str]] | None:
        """The versions of a package as the interface lists them; None if the package does not exist."""
        versions: list[dict[str, str]] | None
        versions = await self._request("GET", "get_package_versions", package_id, none_for="package_not_found")
        return versions

    async def damaged_versions(self) -> Set[str]:
        """The UIDs of the tenant's versions whose stored files are damaged."""
        return {row["version_uid"] for row in await self._request("GET", "get_damaged_installers")}

    async def one_installer_a_version(self) -> bool:
        """Whether a version string is unique within a package of this tenant; requested once."""
        if self._one_installer_a_version is None:
            settings = (await self._request("GET", "server_information"))["settings"]
            self._one_installer_a_version = settings["version_key"] == "version"
        return self._one_installer_a_version

    async def add_package(self, package_id: str, package: NewPackage) -> None:
        """Add a package if it does not exist. Raises UpstreamProblem, also if another package has a similar id."""

        def body(_: Callable[[], None]) -> FormData:
            form = FormData([("package_id", package_id), *package.form])
            if package.logo:
                form.add_field("Logo", package.logo, filename="logo")
            return form

        try:
            await self._request("POST", "add_package", body=body)
        except UpstreamProblem as refusal:
            # Another package may have an id that differs in letter case only.
            if refusal.code != "package_exists" or refusal.params.get("package_id", package_id) != package_id:
                raise

    async def state(self, file_id: str) -> TransferState:
        """The state of a transfer; an unknown one has not begun."""
        headers = {"X-File-ID": file_id}
        answer = await self._request("GET", "upload_package_version", headers=headers, none_for="transfer_not_found")
        return TransferState.model_validate(answer or {})

    async def send_chunk(
        self, file_id: str, start: int, total: int, content: bytes, suffix: str, progress: Callable[[int], None]
    ) -> TransferState:
        """Send a chunk without retries; `progress` is called with the number of bytes of the file sent so far."""
        boundary = uuid4().hex
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="chunk"; filename="installer{suffix}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        tail = f"\r\n--{boundary}--\r\n".encode()

        async def blocks(block_sent: Callable[[], None]) -> AsyncIterator[bytes | memoryview]:
            yield head
            for offset in range(0, len(content), BLOCK):
                yield memoryview(content)[offset : offset + BLOCK]
                block_sent()
                progress(start + min(offset + BLOCK, len(content)))
            yield tail

        headers = {
            "X-File-ID": file_id,
            "Content-Range": f"bytes {start}-{start + len(content) - 1}/{total}",
            "Content-Type": f"multipart/form-data; boundary={boundary}",
            "Content-Length": str(len(head) + len(content) + len(tail)),
        }
        answer = await self._client.request("POST", "upload_package_version", headers=headers, body=blocks)
        return TransferState.model_validate(answer)

    async def add_version(self, installer: Installer, **source: str) -> str:
        """Create the version; its UID. `source` has the form fields that name the installer's file.

        Raises UpstreamProblem: 409 if the version exists, 404, 407.
        """
        form = [*installer.form, *source.items()]
        answer = await self._request("POST", "add_package_version", installer.package_id, body=lambda _: FormData(form))
        return str(answer["UID"])

    async def shared_identities(self, uid: str) -> Sequence[Mapping[str, str]]:
        """The identities of a version that other packages have, too; not retried, since they are only a warning."""
        details = await self._client.request("GET", "get_version_details", uid)
        identities: list[dict[str, str]] = details.get("shared_identities", [])  # Earlier releases do not answer them.
        return identities

    async def call(
        self, method: str, *segments: str, query: Mapping[str, str] | None = None, form: Mapping[str, str] | None = None
    ) -> Any:
        """The answer of an operation that may be repeated. `segments` begin with its name."""
        body = None if form is None else lambda _: FormData(form)
        return await self._request(method, *segments, query=query, body=body)

    async def _request(
        self,
        method: str,
        *segments: str,
        query: Mapping[str, str] | None = None,
        headers: dict[str, str] | None = None,
        body: MakeBody | None = None,
        none_for: str = "",
    ) -> Any:
        """The answer; None if the server refuses with the code `none_for`."""
        try:
            return await self.retrying(self._client.request, method, *segments, query=query, headers=headers, body=body)
        except UpstreamProblem as refusal:
            if refusal.code != none_for:
                raise
            return None
