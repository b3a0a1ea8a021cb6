"""Installers from their makers' addresses, which whoever wrote the manifest has chosen: none is trusted."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

import stamina
from aiohttp import (
    ClientConnectionError,
    ClientError,
    ClientPayloadError,
    ClientResponse,
    ClientSession,
    ClientSSLError,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)
from yarl import URL

from common.errors import Problem
from deploy.publish.files import LocalFile, open_file
from deploy.publish.guesses import suffix
from deploy.publish.model import Installer
from deploy.publish.problems import retry_after, wait
from deploy.publish.progress import Row
from deploy.winget_import.networks import AddressForbidden, CheckedResolver, Networks

BLOCK = 1 << 20  # bytes
REDIRECTS = frozenset([301, 302, 303, 307, 308])
MOST_REDIRECTS = 5
ATTEMPTS = 4
LONGEST_PAUSE = 60.0  # seconds that a maker may ask for between two of them
LIMITS = ClientTimeout(total=3600, sock_connect=15, sock_read=60)  # seconds

_patiently = stamina.AsyncRetryingCaller(
    attempts=ATTEMPTS, timeout=None, wait_initial=1.0, wait_max=20.0, wait_jitter=1.0
).on(lambda error: wait(error, LONGEST_PAUSE))


class NotFetched(Problem):
    """The installer's address does not give it."""

    code = "not_fetched"
    status = 404  # and not of ours: it is no reason to ask our server again


class MakerAway(NotFetched):
    """It does not give it now, and may soon: the connection fails, or who answers has trouble or too much to do."""

    status = 503


@dataclass(frozen=True)
class Fetcher:
    """Fetches into a folder of its own; `most` bytes of an installer."""

    http: ClientSession
    networks: Networks
    folder: Path
    most: int

    @asynccontextmanager
    async def open(self, installer: Installer, row: Row) -> AsyncIterator[LocalFile]:
        """The installer's file, there for as long as the block lasts.

        Raises:
            AddressForbidden: the address, or one that it leads to, is not one to ask.
            NotFetched: it does not give the installer, not even after further attempts where one may help.
        """
        path = self.folder / f"{id(row):x}{suffix(installer.path)}"
        try:
            await _patiently(self._fetch, installer.url, path, row)
            async with open_file(path) as file:
                yield file
        except MakerAway as problem:
            raise NotFetched(problem.detail) from None
        finally:
            path.unlink(missing_ok=True)

    def check(self, address: str) -> URL:
        """An address that may be asked, as far as it says itself. Raises AddressForbidden."""
        try:
            url = URL(address)
        except ValueError:
            raise AddressForbidden(f"{address} is no address.") from None
        if url.scheme != "https" or not url.host:
            raise AddressForbidden(f"{address} does not begin with https://.")
        if url.raw_user is not None or url.raw_password is not None:
            raise AddressForbidden("The address holds credentials.")
        with suppress(ValueError):
            self.networks.check(url.host, [str(ip_address(url.host))])
        return url

    async def _fetch(self, address: str, path: Path, row: Row) -> None:
        url = self.check(address)
        try:
            for _ in range(MOST_REDIRECTS + 1):
                async with self.http.get(url, allow_redirects=False) as response:
                    if response.status not in REDIRECTS:
                        await self._keep(response, path, row)
                        return
                    url = self.check(str(url.join(URL(response.headers.get("Location", "")))))
        except (ClientError, OSError, ValueError) as error:
            late = isinstance(error, TimeoutError)
            reason = "it takes too long" if late else getattr(error, "strerror", None) or type(error).__name__
            problem = MakerAway if _may_pass(error) else NotFetched
            raise problem(f"{url.host} does not give {address}: {reason}.") from None
        raise NotFetched(f"{address} leads elsewhere more than {MOST_REDIRECTS} times.")

    async def _keep(self, response: ClientResponse, path: Path, row: Row) -> None:
        if response.status == 429 or response.status >= 500:
            raise MakerAway(f"{response.url} answers {response.status}.", retry_after=retry_after(response.headers))
        if response.status != 200:
            raise NotFetched(f"{response.url} answers {response.status}.")
        row.copying(response.content_length or 0, 0)
        taken = 0
        with path.open("wb") as file:
            async for block in response.content.iter_chunked(BLOCK):
                taken += len(block)
                if max(taken, response.content_length or 0) > self.most:
                    raise NotFetched(f"{response.url} is larger than {self.most >> 20} MiB.")
                await asyncio.to_thread(file.write, block)
                row.at(taken)


def _may_pass(error: Exception) -> bool:
    """Whether it is the connection that failed. One that took all its time, or is not to be trusted, will again."""
    return isinstance(error, ClientConnectionError | ClientPayloadError) and not isinstance(error, ClientSSLError)


@asynccontextmanager
async def open_fetcher(networks: Networks, ca_file: Path | None, most: int) -> AsyncIterator[Fetcher]:
    """A fetcher; `ca_file` has certificates to trust beside the system's.

    It takes no proxy, which would connect to what it likes.
    """
    context = ssl.create_default_context()
    if ca_file:
        context.load_verify_locations(ca_file)
    connector = TCPConnector(ssl=context, resolver=CheckedResolver(networks), use_dns_cache=False)
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        async with ClientSession(
            connector=connector,
            cookie_jar=DummyCookieJar(),
            timeout=LIMITS,
            auto_decompress=False,
            headers={"Accept-Encoding": "identity", "User-Agent": "pkgrepo"},
        ) as http:
            yield Fetcher(http, networks, Path(folder), most)
