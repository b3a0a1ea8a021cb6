"""The server at its public address: one request, one answer, and what each kind of failure means."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
from aiohttp import (
    ClientConnectorCertificateError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)
from yarl import URL

from common.errors import UpstreamProblem
from deploy.publish.problems import NotTheInterface, Unreachable, Untrusted, retry_after

CONNECT_TIMEOUT = 15.0  # seconds
STALL = 120.0  # seconds without a byte of the body taken, or for the answer after it

MakeBody = Callable[[Callable[[], None]], Any]
"""Makes a request's body, as aiohttp's client takes it; called for each try. A long one calls what it is given for each
part of it that was taken, which then has `STALL` seconds more."""


class Server:
    """Asks for operations of the interface below its base address."""

    def __init__(self, http: ClientSession, base: str) -> None:
        self._http = http
        self._base = base.rstrip("/")

    async def ask(
        self, method: str, *segments: str, headers: Mapping[str, str] | None = None, body: MakeBody | None = None
    ) -> Any:
        """The JSON answer to an operation, None where it is without content.

        `segments` are the parts of its path, the operation's name first.

        Raises:
            Answered: the server refuses, with its own words.
            Unreachable: no answer came.
            Untrusted: its certificate does not verify.
            NotTheInterface: something else answers.
        """
        path = "/".join(quote(segment, safe="") for segment in segments)
        url = URL(f"{self._base}/{path}", encoded=True)
        try:
            async with asyncio.timeout(STALL) as limit:
                loop = asyncio.get_running_loop()
                data = body(lambda: limit.reschedule(loop.time() + STALL)) if body else None
                async with self._http.request(
                    method, url, headers=headers, data=data, allow_redirects=False
                ) as response:
                    content = await response.read()
        except ClientConnectorCertificateError as error:
            raise Untrusted(f"The certificate of {url.host} is not trusted: {error.certificate_error}.") from None
        except TimeoutError:
            raise Unreachable(f"{url.host} does not answer.") from None
        except (ClientError, OSError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise Unreachable(f"The connection to {url.host} failed: {reason}.") from None
        return _understood(response, content)


@asynccontextmanager
async def open_server(base: str, ca_file: Path | None) -> AsyncIterator[Server]:
    """The server at an address; `ca_file` has the certificates to trust instead of the system's. Raises OSError."""
    context = ssl.create_default_context(cafile=ca_file)
    async with ClientSession(
        connector=TCPConnector(ssl=context),
        cookie_jar=DummyCookieJar(),
        timeout=ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
        trust_env=True,  # Many a pipeline reaches the world through a proxy only.
    ) as http:
        yield Server(http, base)


def _understood(response: ClientResponse, content: bytes) -> Any:
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError:
        answer = None
    if response.status == 204 or (200 <= response.status < 300 and answer is not None):
        return answer
    if 300 <= response.status < 400:
        raise NotTheInterface(f"The address leads elsewhere, to {response.headers.get('Location', 'nowhere')}.")
    problem = answer if isinstance(answer, dict) else {}
    if response.status < 400:
        raise NotTheInterface(f"What answers at {response.url} is not the interface.")
    raise UpstreamProblem(
        str(problem.get("detail") or f"The server answered {response.status} {response.reason or ''}".strip() + "."),
        status=response.status,
        code=str(problem.get("code") or "refused"),
        retry_after=retry_after(response.headers),
    )
