"""HTTP requests to the server's public address, with an API token or in a session that is renewed when it ends."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import orjson
from aiohttp import FormData
from pydantic import SecretStr
from yarl import URL

from common.errors import Problem, UpstreamProblem
from common.settings import BadSetting, EnvironmentSettings
from deploy.publish.problems import NotTheInterface, Unreachable, Untrusted, retry_after

CONNECT_TIMEOUT = 15.0  # seconds
LOGOUT_TIMEOUT = 5.0  # seconds
STALL_TIMEOUT = 120.0  # seconds without a byte of the body sent, or without an answer after it

MakeBody = Callable[[Callable[[], None]], Any]
"""Makes the body of each attempt, as aiohttp's client takes it. A long body calls its argument after each part that was
sent, which restarts the `STALL_TIMEOUT`."""


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
