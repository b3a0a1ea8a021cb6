"""HTTP requests to the server's public address, and the problem of each kind of failure."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson
from yarl import URL

from common.errors import UpstreamProblem
from deploy.publish.problems import NotTheInterface, Unreachable, Untrusted, retry_after

CONNECT_TIMEOUT = 15.0  # seconds
STALL_TIMEOUT = 120.0  # seconds without a byte of the body sent, or without an answer after it

MakeBody = Callable[[Callable[[], None]], Any]
"""Makes the body of each attempt, as aiohttp's client takes it. A long body calls its argument after each part that was
sent, which restarts the `STALL_TIMEOUT`."""


@dataclass(frozen=True)
class Server:
    """Requests operations below the base address, which ends without a slash."""

    http: aiohttp.ClientSession
    base: str

    async def request(
        self, method: str, *segments: str, headers: Mapping[str, str] | None = None, body: MakeBody | None = None
    ) -> Any:
        """The JSON answer of an operation, None if it has no content.

        `segments` are the parts of its path, the operation's name first.
        Raises UpstreamProblem where the server refuses; Unreachable, Untrusted and NotTheInterface.
        """
        path = "/".join(quote(segment, safe="") for segment in segments)
        url = URL(f"{self.base}/{path}", encoded=True)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(STALL_TIMEOUT) as limit:
                data = body(lambda: limit.reschedule(loop.time() + STALL_TIMEOUT)) if body else None
                async with self.http.request(
                    method, url, headers=headers, data=data, allow_redirects=False
                ) as response:
                    return _parse_answer(response, await response.read())
        except aiohttp.ClientConnectorCertificateError as error:
            raise Untrusted(f"The certificate of {url.host} is not trusted: {error.certificate_error}.") from None
        except TimeoutError:
            raise Unreachable(f"{url.host} does not answer.") from None
        except (aiohttp.ClientError, OSError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise Unreachable(f"The connection to {url.host} failed: {reason}.") from None


@asynccontextmanager
async def open_server(base: str, ca_file: Path | None) -> AsyncIterator[Server]:
    """The server at an address; `ca_file` has the certificates to trust instead of the system's. Raises OSError."""
    context = ssl.create_default_context(cafile=ca_file)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
        trust_env=True,  # Many pipelines reach other hosts through a proxy only.
    ) as http:
        yield Server(http, base.rstrip("/"))


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
        retry_after=retry_after(response.headers),
    )
