"""Installers from their makers' addresses, which whoever wrote the manifest has chosen: none is trusted."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from common.errors import Problem
from deploy.manifests.networks import AddressForbidden, CheckedResolver, Networks
from deploy.publishing.files import LocalFile, open_file
from deploy.publishing.guesses import suffix
from deploy.publishing.model import Installer
from deploy.publishing.progress import Row

BLOCK = 1 << 20  # bytes
REDIRECTS = frozenset([301, 302, 303, 307, 308])
MOST_REDIRECTS = 5
LIMITS = ClientTimeout(total=3600, sock_connect=15, sock_read=60)  # seconds


class NotFetched(Problem):
    """The installer's address does not give it."""

    code = "not_fetched"
    status = 404  # and not of ours: it is no reason to ask our server again


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
            NotFetched: it does not give the installer.
        """
        path = self.folder / f"{id(row):x}{suffix(installer.path)}"
        try:
            await self._fetch(installer.url, path, row)
            async with open_file(path) as file:
                yield file
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
        except TimeoutError:
            raise NotFetched(f"{url.host} takes too long.") from None
        except (ClientError, OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise NotFetched(f"{url.host} does not give {address}: {reason}.") from None
        raise NotFetched(f"{address} leads elsewhere more than {MOST_REDIRECTS} times.")

    async def _keep(self, response: ClientResponse, path: Path, row: Row) -> None:
        if response.status != 200:
            raise NotFetched(f"{response.url} answers {response.status}.")
        row.copying(response.content_length or 0, 0)
        taken = 0
        with path.open("xb") as file:
            async for block in response.content.iter_chunked(BLOCK):
                taken += len(block)
                if max(taken, response.content_length or 0) > self.most:
                    raise NotFetched(f"{response.url} is larger than {self.most >> 20} MiB.")
                await asyncio.to_thread(file.write, block)
                row.at(taken)


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
