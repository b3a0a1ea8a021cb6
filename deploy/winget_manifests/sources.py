"""Finds the installers of manifests: in a folder first, then at their addresses, which are not trusted."""

import asyncio
import hashlib
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import stamina
from yarl import URL

from common.errors import Problem
from common.http.outbound import CheckedResolver, parse_https
from deploy.publish.files import LocalFile, open_file, open_regular, suffix_of
from deploy.publish.model import Installer, OtherBytes, retry_after, retry_delay
from deploy.terminal import FileProgress

BLOCK = 1 << 20  # bytes
REDIRECTS = frozenset([301, 302, 303, 307, 308])
MAX_REDIRECTS = 5
ATTEMPTS = 4
MAX_PAUSE = 60.0  # seconds that a server may request between two attempts
TIMEOUTS = aiohttp.ClientTimeout(total=3600, sock_connect=15, sock_read=60)  # seconds

_with_retries = stamina.AsyncRetryingCaller(
    attempts=ATTEMPTS, timeout=None, wait_initial=1.0, wait_max=20.0, wait_jitter=1.0
).on(lambda error: retry_delay(error, MAX_PAUSE))


class NotFetched(Problem):
    """The address does not give the installer."""

    code = "not_fetched"
    status = 404  # No status of our server, so publishing is not tried again.


class SourceUnavailable(NotFetched):
    """The address does not give the installer now: the connection failed, or the server has an error."""

    status = 503


@dataclass(frozen=True)
class Fetcher:
    """Downloads installers of at most `max_size` bytes into a folder."""

    http: aiohttp.ClientSession
    allowed_networks: tuple[str, ...]
    folder: Path
    max_size: int

    @asynccontextmanager
    async def open(self, installer: Installer, row: FileProgress) -> AsyncIterator[LocalFile]:
        """Download the installer; its file exists within the block.

        Raises:
            AddressForbidden: the address, or a redirect, is not allowed.
            NotFetched: the download failed, also after further attempts.
        """
        path = self.folder / f"{id(row):x}{suffix_of(installer.path)}"
        try:
            await _with_retries(self._fetch, installer.url, path, row)
            async with open_file(path) as file:
                yield file
        except SourceUnavailable as problem:
            raise NotFetched(problem.detail) from None
        finally:
            path.unlink(missing_ok=True)

    def check(self, address: str) -> URL:
        """Parse an address, before its name is resolved. Raises AddressForbidden."""
        return parse_https(address, self.allowed_networks)

    async def _fetch(self, address: str, path: Path, row: FileProgress) -> None:
        url = self.check(address)
        try:
            for _ in range(MAX_REDIRECTS + 1):
                async with self.http.get(url, allow_redirects=False) as response:
                    if response.status not in REDIRECTS:
                        await self._save(response, path, row)
                        return
                    url = self.check(str(url.join(URL(response.headers.get("Location", "")))))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            is_slow = isinstance(error, TimeoutError)
            reason = "it takes too long" if is_slow else getattr(error, "strerror", None) or type(error).__name__
            problem = SourceUnavailable if _is_temporary(error) else NotFetched
            raise problem(f"{url.host} does not give {address}: {reason}.") from None
        raise NotFetched(f"{address} leads elsewhere more than {MAX_REDIRECTS} times.")

    async def _save(self, response: aiohttp.ClientResponse, path: Path, row: FileProgress) -> None:
        if response.status == 429 or response.status >= 500:
            raise SourceUnavailable(
                f"{response.url} answers {response.status}.", retry_after=retry_after(response.headers)
            )
        if response.status != 200:
            raise NotFetched(f"{response.url} answers {response.status}.")
        row.start("copying", response.content_length or 0)
        received = 0
        with path.open("wb") as file:
            async for block in response.content.iter_chunked(BLOCK):
                received += len(block)
                if max(received, response.content_length or 0) > self.max_size:
                    raise NotFetched(f"{response.url} is larger than {self.max_size >> 20} MiB.")
                await asyncio.to_thread(file.write, block)
                row.update(received)


def _is_temporary(error: Exception) -> bool:
    """Whether another attempt may succeed: after a time-out or a TLS error it would fail again."""
    is_of_tls = isinstance(error, aiohttp.ClientSSLError)
    return isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError) and not is_of_tls


@asynccontextmanager
async def open_fetcher(
    allowed_networks: tuple[str, ...], ca_file: Path | None, max_size: int
) -> AsyncIterator[Fetcher]:
    """Open a fetcher; `ca_file` has certificates to trust beside the system's.

    It uses no proxy, because a proxy would bypass the check of addresses.
    """
    context = ssl.create_default_context()
    if ca_file:
        context.load_verify_locations(ca_file)
    connector = aiohttp.TCPConnector(ssl=context, resolver=CheckedResolver(allowed_networks), use_dns_cache=False)
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=TIMEOUTS,
            auto_decompress=False,
            headers={"Accept-Encoding": "identity", "User-Agent": "pkgrepo"},
        ) as http:
            yield Fetcher(http, allowed_networks, Path(folder), max_size)


class InstallerMissing(Problem):
    """No source has the installer."""

    status = 404
    code = "installer_missing"


class InstallersFolder:
    """Finds installers below a folder by the name in their address, or else by their SHA-256.

    Each file is hashed once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digests: dict[Path, str] = {}
        self._by_digest: dict[str, Path] = {}
        self._hashing = asyncio.Lock()

    async def find(self, installer: Installer) -> Path:
        """Return the path of the installer. Raises InstallerMissing and OtherBytes."""
        async with self._hashing:
            return await asyncio.to_thread(self._find, installer)

    @cached_property
    def _files(self) -> Sequence[Path]:
        return [path for path in sorted(self._path.rglob("*")) if path.is_file()]

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[Path]]:
        """The files by their names, with and without the ending. Without it the name may be a digest."""
        files: dict[str, list[Path]] = defaultdict(list)
        for path in self._files:
            for name in {path.name.casefold(), path.stem.casefold()}:
                files[name].append(path)
        return files

    @cached_property
    def _unread(self) -> Iterator[Path]:
        return iter(self._files)

    def _find(self, installer: Installer) -> Path:
        same_name = self._by_name.get(installer.path.name.casefold(), ())
        for path in (*same_name, *self._by_name.get(installer.sha256, ())):
            if self._sha256(path) == installer.sha256:
                return path
        while installer.sha256 not in self._by_digest and (unread := next(self._unread, None)):
            self._sha256(unread)
        if same_digest := self._by_digest.get(installer.sha256):
            return same_digest
        if same_name:
            actual = self._sha256(same_name[0])
            raise OtherBytes(path=same_name[0], expected=installer.sha256, actual=actual)
        raise InstallerMissing(f"{installer.path.name} is not in {self._path}, nor any file of its SHA-256.")

    def _sha256(self, path: Path) -> str:
        if path not in self._digests:
            try:
                with open(path, "rb", opener=open_regular) as file:
                    self._digests[path] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError:
                self._digests[path] = ""
            self._by_digest.setdefault(self._digests[path], path)
        return self._digests[path]


@dataclass(frozen=True)
class InstallerSources:
    """The folder and the fetcher that may have an installer."""

    folder: InstallersFolder | None
    fetcher: Fetcher | None

    @asynccontextmanager
    async def open(self, installer: Installer, row: FileProgress) -> AsyncIterator[LocalFile]:
        """Open the installer's file.

        Raises:
            InstallerMissing: no source has it.
            OtherBytes: the folder has another file of its name.
            FileUnusable: it cannot be read.
            AddressForbidden, NotFetched: see `Fetcher.open`.
        """
        path = await self.find(installer)
        fetched = self.fetcher.open(installer, row) if self.fetcher and not path else None
        async with fetched or open_file(path or installer.path) as file:
            yield file

    async def find(self, installer: Installer) -> Path | None:
        """Return the path of the installer in the folder, None if it has to be fetched. Raises as `open` does."""
        try:
            if self.folder:
                return await self.folder.find(installer)
        except (InstallerMissing, OtherBytes):
            if not self.fetcher:
                raise
        if self.fetcher:
            self.fetcher.check(installer.url)
        return None
