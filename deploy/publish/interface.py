"""The operations of the interface that publishing takes, asked with patience."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import stamina
from aiohttp import FormData

from common.errors import UpstreamProblem
from deploy.publish.model import Installer, NewPackage
from deploy.publish.problems import wait
from deploy.publish.server import MakeBody
from deploy.publish.session import Session

BLOCK = 64 << 10  # bytes of a chunk between two looks at the clock and the progress


@dataclass(frozen=True)
class State:
    """Where a transfer stands: bytes received, and once it is complete the file's name and digest."""

    received: int = 0
    complete: bool = False
    server_filename: str = ""
    sha256: str = ""


class Interface:
    """The public interface. What may pass is tried again until `timeout` seconds are over."""

    def __init__(self, session: Session, timeout: float) -> None:
        self._session = session
        self._one_installer_a_version: bool | None = None
        self.patiently = stamina.AsyncRetryingCaller(
            attempts=None, timeout=timeout, wait_initial=0.5, wait_max=20.0, wait_jitter=1.0
        ).on(lambda error: wait(error, timeout))

    async def package_ids(self) -> Sequence[str]:
        """The ids of the tenant's active packages."""
        return [row["PACKAGE_ID"] for row in await self._ask("POST", "get_packages")]

    async def manifest(self, package_id: str) -> Mapping[str, Any] | None:
        """What winget is offered of a package, with all that any client knows; None where that is nothing."""
        answer = await self._ask("GET", "winget", "packageManifests", package_id, headers={"Version": "1.28.0"})
        return answer["Data"] if answer else None

    async def versions(self, package_id: str) -> Sequence[Mapping[str, str]] | None:
        """The versions of a package as the interface lists them; None where there is no such package."""
        try:
            listed: list[dict[str, str]] = await self._ask("GET", "get_package_versions", package_id)
        except UpstreamProblem as refusal:
            if refusal.code == "package_not_found":
                return None
            raise
        return listed

    async def damaged_versions(self) -> Set[str]:
        """The UIDs of the tenant's versions whose stored files are damaged."""
        return {row["version_uid"] for row in await self._ask("GET", "get_damaged_installers")}

    async def one_installer_a_version(self) -> bool:
        """Whether this tenant's versions are told apart by their version string alone; asked for once."""
        if self._one_installer_a_version is None:
            settings = (await self._ask("GET", "server_information"))["settings"]
            self._one_installer_a_version = settings["version_key"] == "version"
        return self._one_installer_a_version

    async def add_package(self, package_id: str, package: NewPackage) -> None:
        """Add a package; one that exists already is as good."""

        def body(_: Callable[[], None]) -> FormData:
            form = FormData(
                [
                    ("package_id", package_id),
                    ("package_name", package.name),
                    ("package_publisher", package.publisher),
                    ("package_description", package.description),
                    *package.more,
                ]
            )
            if package.logo:
                form.add_field("Logo", package.logo, filename="logo")
            return form

        try:
            await self._ask("POST", "add_package", body=body)
        except UpstreamProblem as refusal:
            if refusal.code != "package_exists":
                raise

    async def state(self, file_id: str) -> State:
        """Where a transfer stands; one that the server does not know has not begun."""
        try:
            return _state(await self._ask("GET", "upload_package_version", headers={"X-File-ID": file_id}))
        except UpstreamProblem as refusal:
            if refusal.code == "transfer_not_found":
                return State()
            raise

    async def send_chunk(
        self, file_id: str, start: int, total: int, content: bytes, suffix: str, tell: Callable[[int], None]
    ) -> State:
        """Send a chunk, once, and say where the transfer stands then; `tell` hears how far it has come, in bytes."""
        boundary = uuid4().hex
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="chunk"; filename="installer{suffix}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        tail = f"\r\n--{boundary}--\r\n".encode()

        async def blocks(taken: Callable[[], None]) -> AsyncIterator[bytes | memoryview]:
            yield head
            for place in range(0, len(content), BLOCK):
                yield memoryview(content)[place : place + BLOCK]
                taken()
                tell(start + min(place + BLOCK, len(content)))
            yield tail

        headers = {
            "X-File-ID": file_id,
            "Content-Range": f"bytes {start}-{start + len(content) - 1}/{total}",
            "Content-Type": f"multipart/form-data; boundary={boundary}",
            "Content-Length": str(len(head) + len(content) + len(tail)),
        }
        return _state(await self._session.ask("POST", "upload_package_version", headers=headers, body=blocks))

    async def add_version(self, installer: Installer, **where: str) -> str:
        """Create the version; its UID. `where` its installer is stands in the interface's words.

        Raises Answered: 409 where it exists, 404, 407.
        """
        form = [*installer.form, *where.items()]
        answer = await self._ask(
            "POST", "add_package_version", installer.package_id, body=lambda _: FormData(list(form))
        )
        return str(answer["UID"])

    async def _ask(
        self, method: str, *segments: str, headers: dict[str, str] | None = None, body: MakeBody | None = None
    ) -> Any:
        return await self.patiently(self._session.ask, method, *segments, headers=headers, body=body)


def _state(answer: Mapping[str, Any]) -> State:
    return State(
        received=int(answer["received"]),
        complete=bool(answer["complete"]),
        server_filename=str(answer.get("server_filename", "")),
        sha256=str(answer.get("sha256", "")),
    )
