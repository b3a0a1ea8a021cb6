"""Caches catalogs, so that a request for an unchanged catalog needs no call of catalog_service.

A catalog is cached if it has an ETag and fits into memory. It is valid for some seconds while the tenant's version
stays the same. Then the gateway revalidates it: catalog_service answers 304 if it is unchanged.

A large catalog is in a file, from which the system sends it. The file has no name and ends with its process. It is on
disk, where large pages cost the least to send. It is in memory if the temporary folder has little room, as in a
container, or is missing.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from tempfile import TemporaryFile, gettempdir
from typing import BinaryIO, NamedTuple, cast
from weakref import finalize

from aiohttp import ClientError, ClientPayloadError, web
from multidict import CIMultiDict

from common.auth.internal_tokens import HIDDEN, Caller, Kind
from common.caching import FifoCache, ResponseCache
from common.http.bodies import if_none_match, negotiate_encoding
from common.http.middleware import BytesResponse
from common.http.zero_copy.responses import detach_body, send_file
from common.http.zero_copy.sources import splice_to_file
from common.service_client.client import BLOCK_TIMEOUT, Response, ServiceClient, raise_problem
from common.telemetry import log
from gateway.auth.authenticator import TENANT_VERSION
from gateway.auth.directories import ClientDirectory

BLOCK = 256 << 10  # bytes; a longer catalog is in a file
RESERVE = 1 << 30  # bytes of the temporary folder that stay free
MAX_AGE = 30.0  # seconds
FORWARD_AGE = 2.0  # seconds in which a catalog that cannot be kept is forwarded at once
CACHED_HEADERS = ("Cache-Control", "Content-Encoding", "Content-Type", "ETag", "Vary")
AT_ONCE = 8 << 20  # bytes; a longer catalog is forwarded to its first caller, and kept for the second
MAX_TAGS = 10_000
OVERHEAD = 1024  # bytes that an entry takes beside its body
QUERIES = {
    "": False,
    "include_disabled=true": True,
    "include_disabled=false": False,
    "include_disabled=1": True,
    "include_disabled=0": False,
}


class NotStored(Exception):
    """The system has no room or no descriptor for a file."""


async def receive_body(response: Response, length: int) -> bytes | BinaryIO:
    """A body with this length. Raises ClientError, TimeoutError or NotStored."""
    if length <= BLOCK:
        return b"".join([block async for block in response.content.iter_any()])
    try:
        file = await asyncio.to_thread(open_file, length)
        try:
            await _write(response, length, file)
        except BaseException:
            close_in_thread(file)
            raise
    except (ClientError, TimeoutError):
        raise  # Some of them are an OSError, too.
    except OSError as error:
        log.error("catalog_not_stored", error=repr(error))
        raise NotStored from error
    return file


async def _write(response: Response, length: int, file: BinaryIO) -> None:
    try:
        if body := detach_body(response, length):
            await asyncio.to_thread(_write_blocks, file, body.blocks)
            if body.connection:
                await splice_to_file(body.connection, file, body.rest, timeout=BLOCK_TIMEOUT)
        else:
            async for block in response.content.iter_any():
                await asyncio.to_thread(_write_blocks, file, [block])
    except EOFError:
        raise ClientPayloadError("The catalog ended early.") from None


def _write_blocks(file: BinaryIO, blocks: Sequence[bytes]) -> None:
    file.writelines(blocks)
    file.flush()


def open_file(length: int) -> BinaryIO:
    """An empty file for so many bytes."""
    if not hasattr(os, "memfd_create"):
        return cast("BinaryIO", TemporaryFile())
    with suppress(OSError):  # There is no temporary folder, or it is read-only.
        folder = os.statvfs(gettempdir())
        if folder.f_bavail * folder.f_frsize >= length + RESERVE:
            return cast("BinaryIO", TemporaryFile())
    return os.fdopen(os.memfd_create("catalog"), "w+b")


def close_in_thread(file: BinaryIO) -> None:
    """Close a file. The system frees its pages, which takes milliseconds."""
    with suppress(RuntimeError):  # There is no event loop at the end of the process.
        asyncio.get_running_loop().run_in_executor(None, file.close)
        return
    file.close()


class View(NamedTuple):
    """Everything that a catalog depends on. `hidden` is the digest of the caller's hidden package ids.

    `audience` is the ring whose versions the caller sees.
    """

    tenant_id: str
    include_disabled: bool
    hidden: str
    audience: str
    encoding: str


@dataclass(frozen=True, eq=False)
class Catalog:
    """The response with a catalog. A file's bytes never change: the system may still send them after `send`."""

    headers: Mapping[str, str]
    length: int
    body: bytes | BinaryIO

    @property
    def etag(self) -> str:
        return self.headers["ETag"]

    @cached_property
    def not_modified_headers(self) -> CIMultiDict[str]:
        return CIMultiDict((name, value) for name, value in self.headers.items() if not name.startswith("Content-"))

    async def send(self, request: web.Request) -> web.StreamResponse:
        """Send the catalog, or 304 if the caller has it already."""
        if if_none_match(request, self.etag):
            return BytesResponse(status=304, headers=self.not_modified_headers)
        if isinstance(self.body, bytes):
            return BytesResponse(body=self.body, headers=self.headers)
        response = web.StreamResponse(headers=self.headers)
        response.content_length = self.length
        try:
            await response.prepare(request)
            if request.secure:  # The system would send the bytes without encryption.
                for start in range(0, self.length, BLOCK):
                    await response.write(await asyncio.to_thread(os.pread, self.body.fileno(), BLOCK, start))
            else:
                await send_file(request, self.body, 0, self.length)
            await response.write_eof()
        except ConnectionResetError:
            pass  # The caller closed the connection.
        except (OSError, EOFError) as error:
            # The status was sent already: only a broken connection shows that the body is incomplete.
            log.error("answer_broke_off", error=type(error).__name__)
            if request.transport is not None:
                request.transport.abort()
        return response


class _Changed(Exception):
    """A long catalog has content that no caller has asked for before."""

    is_forwarded = False


class CatalogCache:
    """Catalogs of catalog_service within a budget of bytes.

    Catalogs that are being received, or sent to slow callers, count too. If they fill the budget, the cache holds
    nothing, and catalogs are streamed.
    """

    def __init__(self, catalog_service: ServiceClient, clients: ClientDirectory, *, budget: int) -> None:
        self._catalog_service = catalog_service
        self._clients = clients
        self._budget = budget
        self._tags: FifoCache[View, str] = FifoCache(MAX_TAGS)  # of the long catalogs that were asked for
        self.used_bytes = 0  # of all catalogs in memory
        self.count = 0  # of all catalogs in memory
        self._catalogs: ResponseCache[View, Catalog | None] = ResponseCache(max_age=_max_age, limit=budget, size=_size)

    async def find(self, request: web.Request, caller: Caller) -> Catalog | None:
        """The catalog for this caller; None to forward it. Raises UpstreamProblem, Unavailable or Overloaded."""
        version = request[TENANT_VERSION]
        include_disabled = QUERIES.get(request.rel_url.raw_query_string)
        if version is None or include_disabled is None:
            return None
        hidden = await self._clients.hidden_from(caller, version) if caller.kind is Kind.CLIENT else ""
        view = View(caller.tenant_id, include_disabled, hidden, caller.audience, negotiate_encoding(request))
        if (catalog := self._catalogs.get(view, version)) is not None:
            return catalog
        fetch = partial(self._fetch, caller, view)
        while True:
            try:
                return await self._catalogs.get_or_fetch(view, version, fetch)
            except _Changed as changed:
                if not changed.is_forwarded:
                    changed.is_forwarded = True
                    return None  # The other callers of this call ask again.

    async def _fetch(self, caller: Caller, view: View) -> Catalog | None:
        cached = self._catalogs.get_stale(view)
        headers = {"Accept-Encoding": view.encoding or "identity", HIDDEN: view.hidden}
        if cached:
            headers["If-None-Match"] = cached.etag
        query = f"include_disabled={'true' if view.include_disabled else 'false'}"
        async with self._catalog_service.open(
            caller, "POST", ["get_packages"], query=query, headers=headers, streamed=True
        ) as response:
            await raise_problem(response)
            if response.headers.get(HIDDEN, "") != view.hidden:
                return None  # The hidden packages changed after we read them: this is the catalog of another view.
            if response.status == 304:
                return cached
            cached = None  # Memory may not hold both.
            return await self._receive(response, view)

    async def _receive(self, response: Response, view: View) -> Catalog | None:
        """The catalog of a response; None if it is too large, has no ETag, or no length.

        Without a length, catalog_service sends it while it reads it from its database, which may take long.
        """
        length, tag = response.content_length, response.headers.get("ETag")
        if tag is None or length is None or length > self._budget // 2:
            return None
        if length > AT_ONCE and self._tags.get(view) != tag:
            self._tags.put(view, tag)
            raise _Changed
        if not self._make_room(length):
            return None
        self.used_bytes += length
        self.count += 1
        body: bytes | BinaryIO | None = None
        try:
            body = await receive_body(response, length)
        except NotStored:
            return None
        finally:
            if body is None:
                self._release(length)
        headers = {name: response.headers[name] for name in CACHED_HEADERS if name in response.headers}
        catalog = Catalog(headers, length, body)
        finalize(catalog, self._release, length, body)
        return catalog

    def _make_room(self, length: int) -> bool:
        """Evict the oldest catalogs until so many bytes fit. Returns False if they cannot fit."""
        while self.used_bytes + length > self._budget:
            if not self._catalogs.evict_oldest():
                return False
        return True

    def _release(self, length: int, body: bytes | BinaryIO = b"") -> None:
        self.used_bytes -= length
        self.count -= 1
        if not isinstance(body, bytes):
            close_in_thread(body)


CATALOGS = web.AppKey("catalogs", CatalogCache)


def _size(catalog: Catalog | None) -> int:
    return catalog.length + OVERHEAD if catalog else OVERHEAD


def _max_age(catalog: Catalog | None) -> float:
    return MAX_AGE if catalog else FORWARD_AGE
