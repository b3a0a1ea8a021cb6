"""The operations of the server's public interface that publishing needs.

Requests have an API token, or are in a session that is renewed when it ends. Transient failures are retried.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from uuid import uuid4

import aiohttp
import orjson
import stamina
from aiohttp import FormData
from pydantic import BaseModel, SecretStr
from yarl import URL

from catalog_service.model.enumerations import FileType
from common.errors import Problem, UpstreamProblem
from common.settings import BadSetting, EnvironmentSettings
from deploy.publish.model import (
    Installer,
    NewPackage,
    NotTheInterface,
    Published,
    Unreachable,
    Untrusted,
    retry_after,
    retry_delay,
)

CONNECT_TIMEOUT = 15.0  # seconds
LOGOUT_TIMEOUT = 5.0  # seconds
STALL_TIMEOUT = 120.0  # seconds without a byte of the body sent, or without an answer after it

MakeBody = Callable[[Callable[[], None]], Any]
"""Makes the body of each attempt, as aiohttp's client takes it. A long body calls its argument after each part that was
sent, which restarts the `STALL_TIMEOUT`."""
BLOCK = 64 << 10  # bytes of a chunk from one report of the progress to the next


class Credentials(EnvironmentSettings):
    """Read from the environment, or from files that it names: a command line must not contain secrets."""

    pkgrepo_user: str = ""
    pkgrepo_password: SecretStr = SecretStr("")
    pkgrepo_token: SecretStr = SecretStr("")

    @property
    def can_sign_in(self) -> bool:
        return bool(self.pkgrepo_user and self.pkgrepo_password)

    def check(self) -> None:
        """Raise BadSetting where they are incomplete, or where both an API token and a user are set."""
        if self.pkgrepo_token and (self.pkgrepo_user or self.pkgrepo_password):
            raise BadSetting("PKGREPO_TOKEN and PKGREPO_USER with PKGREPO_PASSWORD are set; set only one of the two")
        if not self.can_sign_in and not self.pkgrepo_token:
            raise BadSetting("set PKGREPO_TOKEN, or PKGREPO_USER and PKGREPO_PASSWORD or PKGREPO_PASSWORD_FILE")


class HttpClient:
    """Requests operations below the base address.

    Without an API token it signs in before the first request, and again when a session ends.
    """

    def __init__(self, http: aiohttp.ClientSession, base: str, credentials: Credentials) -> None:
        self._http = http
        self._base = base.rstrip("/")
        self._credentials = credentials
        self.token = credentials.pkgrepo_token.get_secret_value().strip()
        self._has_signed_in = False
        self._sign_in_lock = asyncio.Lock()

    async def request(
        self,
        method: str,
        *segments: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: MakeBody | None = None,
    ) -> Any:
        """The JSON answer of an operation, None if it has no content.

        `segments` are the parts of its path, the operation's name first.
        Raises UpstreamProblem where the server refuses, also the login; Unreachable, Untrusted and NotTheInterface.
        """

        async def attempt(token: str) -> Any:
            return await self._send(method, path, {"Authorization": f"Bearer {token}", **(headers or {})}, body)

        path = "/".join(quote(segment, safe="") for segment in segments) + (f"?{urlencode(query)}" if query else "")
        token = self.token or await self._sign_in("")
        try:
            return await attempt(token)
        except UpstreamProblem as refusal:
            # The interface also answers 401 for a package that exists.
            if refusal.code != "not_authenticated" or not self._credentials.can_sign_in:
                raise
        return await attempt(await self._sign_in(token))

    async def _sign_in(self, expired: str) -> str:
        """Replace the expired token, unless another task has done so; the new token."""
        async with self._sign_in_lock:
            if self.token != expired:
                return self.token
            password = self._credentials.pkgrepo_password.get_secret_value()
            form = {"username": self._credentials.pkgrepo_user, "password": password}
            answer = await self._send("POST", "login", {}, lambda _: FormData(form))
            self.token, self._has_signed_in = str(answer["message"]), True
            return self.token

    async def log_out(self) -> None:
        """End the session if the client signed in. If that fails, the session expires."""
        if self._has_signed_in:
            with suppress(Problem, TimeoutError):
                async with asyncio.timeout(LOGOUT_TIMEOUT):
                    await self._send("POST", "logout", {}, lambda _: FormData({"token": self.token}))

    async def _send(self, method: str, path: str, headers: Mapping[str, str], body: MakeBody | None) -> Any:
        url = URL(f"{self._base}/{path}", encoded=True)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(STALL_TIMEOUT) as limit:
                data = body(lambda: limit.reschedule(loop.time() + STALL_TIMEOUT)) if body else None
                request = self._http.request(method, url, headers=headers, data=data, allow_redirects=False)
                async with request as response:
                    return _parse_answer(response, await response.read())
        except aiohttp.ClientConnectorCertificateError as error:
            raise Untrusted(f"The certificate of {url.host} is not trusted: {error.certificate_error}.") from None
        except TimeoutError:
            raise Unreachable(f"{url.host} does not answer.") from None
        except (aiohttp.ClientError, OSError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise Unreachable(f"The connection to {url.host} failed: {reason}.") from None


@asynccontextmanager
async def open_http_client(base: str, ca_file: Path | None, credentials: Credentials) -> AsyncIterator[HttpClient]:
    """Open a client for the server at an address; log out after the block.

    `ca_file` has the certificates to trust instead of the system's. Raises OSError.
    """
    context = ssl.create_default_context(cafile=ca_file)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
        trust_env=True,  # Many pipelines reach other hosts through a proxy only.
    ) as http:
        client = HttpClient(http, base, credentials)
        try:
            yield client
        finally:
            await client.log_out()


def _parse_answer(response: aiohttp.ClientResponse, content: bytes) -> Any:
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError:
        answer = None
    if response.status == 204 or (200 <= response.status < 300 and answer is not None):
        return answer
    if 300 <= response.status < 400:
        raise NotTheInterface(f"The server redirects to {response.headers.get('Location', 'another address')}.")
    if response.status < 400:
        raise NotTheInterface(f"The answer of {response.url} is not one of the interface.")
    problem = answer if isinstance(answer, dict) else {}
    raise UpstreamProblem(
        str(problem.get("detail") or f"The server answered {response.status} {response.reason or ''}".strip() + "."),
        status=response.status,
        code=str(problem.get("code") or "refused"),
        params=params if isinstance(params := problem.get("params"), dict) else {},
        retry_after=retry_after(response.headers),
    )


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
        self.retry_timeout = retry_timeout
        self._one_installer_a_version: bool | None = None
        self.retrying = stamina.AsyncRetryingCaller(
            attempts=None, timeout=retry_timeout, wait_initial=0.5, wait_max=20.0, wait_jitter=1.0
        ).on(lambda error: retry_delay(error, retry_timeout))

    async def package_ids(self) -> Sequence[str]:
        """The ids of the tenant's active packages."""
        return [row["PACKAGE_ID"] for row in await self.request("POST", "get_packages")]

    async def manifest(self, package_id: str) -> Mapping[str, Any] | None:
        """The winget manifest of a package with all fields of the newest contract; None if winget is not offered it."""
        answer = await self.request("GET", "winget", "packageManifests", package_id, headers={"Version": "1.28.0"})
        return answer["Data"] if answer else None

    async def versions(self, package_id: str) -> Sequence[Mapping[str, str]] | None:
        """The versions of a package as the interface lists them; None if the package does not exist."""
        versions: list[dict[str, str]] | None
        versions = await self.request("GET", "get_package_versions", package_id, none_for="package_not_found")
        return versions

    async def damaged_versions(self) -> Set[str]:
        """The UIDs of the tenant's versions whose stored files are damaged."""
        return {row["version_uid"] for row in await self.request("GET", "get_damaged_installers")}

    async def one_installer_a_version(self) -> bool:
        """Whether a version string is unique within a package of this tenant; requested once."""
        if self._one_installer_a_version is None:
            settings = (await self.request("GET", "server_information"))["settings"]
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
            await self.request("POST", "add_package", body=body)
        except UpstreamProblem as refusal:
            # Another package may have an id that differs in letter case only.
            if refusal.code != "package_exists" or refusal.params.get("package_id", package_id) != package_id:
                raise

    async def state(self, file_id: str) -> TransferState:
        """The state of a transfer; an unknown one has not begun."""
        headers = {"X-File-ID": file_id}
        answer = await self.request("GET", "upload_package_version", headers=headers, none_for="transfer_not_found")
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
        answer = await self.request("POST", "add_package_version", installer.package_id, body=lambda _: FormData(form))
        return str(answer["UID"])

    async def with_warnings(self, published: Published) -> Published:
        """The result with what the server says against the version; not retried, since these are only warnings."""
        details = await self._client.request("GET", "get_version_details", published.uid)
        refusals = details.get("winget_refusals", ())  # Earlier releases do not answer them.
        reasons = [f"{row['field']} {row['reason']}".strip().removesuffix(".") for row in refusals]
        texts = [f"winget does not show this version: {reason}." for reason in reasons]
        if details["file_type"] == FileType.EXE and not details["switch_Silent"]:
            texts.append("An EXE without a silent switch may wait for a click that nobody can make. Add --switch.")
        shared = details.get("shared_identities", ())
        return replace(published, shared=shared, warnings=[*published.warnings, *texts])

    async def request(
        self,
        method: str,
        *segments: str,
        query: Mapping[str, str] | None = None,
        headers: dict[str, str] | None = None,
        body: MakeBody | None = None,
        none_for: str = "",
    ) -> Any:
        """The answer as `HttpClient.request` has it; None if the server refuses with the code `none_for`."""
        try:
            return await self.retrying(self._client.request, method, *segments, query=query, headers=headers, body=body)
        except UpstreamProblem as refusal:
            if refusal.code != none_for:
                raise
            return None
