"""The operation of the catalog, and its response: sent from files, or with early headers for slow reads."""

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable

import orjson
from aiohttp import web

from catalog_service.app_keys import CATALOG_CACHE, CLIENT_REGISTRY
from catalog_service.catalog.cache import CatalogBody, CatalogCache
from catalog_service.catalog.compression import ENCODINGS, PLAIN
from catalog_service.catalog.reader import CatalogEntry
from catalog_service.catalog.revision_store import CatalogState
from catalog_service.catalog.snapshot import View
from common.auth.internal_tokens import HIDDEN, hidden_digest
from common.caching import RevisionCheck
from common.http.bodies import if_none_match, negotiate_encoding
from common.http.forms import flag
from common.http.middleware import caller_of
from common.http.zero_copy.responses import send_blocks
from common.http.zero_copy.sources import Block, FileRange, read_blocks
from common.mongo import MongoError
from common.telemetry import log

REVALIDATE = "private, no-cache"
IMMUTABLE = "private, max-age=31536000, immutable"  # for addresses that change with their content
START_TIMEOUT = 2.0  # seconds until a response begins; callers wait for three
SLICE = 256 << 10  # bytes of a response that are on their way to one client

routes = web.RouteTableDef()


@routes.post("/{tenant_id}/get_packages")
async def get_packages(request: web.Request) -> web.StreamResponse:
    include_disabled = flag("include_disabled", request.query.get("include_disabled", "false"))
    hidden = await request.app[CLIENT_REGISTRY].hidden_from_caller(request)
    view = View(include_disabled, caller_of(request).audience, hidden)
    return await catalog_response(request, request.app[CATALOG_CACHE], view)


def rendered_package(entry: CatalogEntry) -> bytes:
    """Return a Package object in JSON; `VERSIONS` and `VERSIONS_UID` have the same order, newest first."""
    package, versions = entry.package, entry.versions
    members = {
        "PACKAGE_ID": package.package_id,
        "PACKAGE_NAME": package.name,
        "PACKAGE_PUBLISHER": package.publisher,
        "PACKAGE_DESCRIPTION": package.description,
        "PACKAGE_LOGO": f"data:image/png;base64,{b64encode(package.logo).decode()}" if package.logo else "",
        "PACKAGE_ACTIVE": "1" if package.active else "0",
        "VERSIONS": [version.version for version in versions],
        "VERSIONS_UID": [version.uid for version in versions],
    }
    return orjson.dumps(members)


async def catalog_response(request: web.Request, catalogs: CatalogCache, view: View) -> web.StreamResponse:
    """Respond with the packages of a view, in an encoding that the caller accepts; 304 if `If-None-Match` has them."""
    tenant_id = caller_of(request).tenant_id
    check = await catalogs.check(tenant_id)
    headers = {"Vary": "Accept-Encoding", "Cache-Control": REVALIDATE, HIDDEN: hidden_digest(view.hidden)}
    if revision := check.state.stable_revision:
        # The tag is weak: replicas and encodings have other bytes for it.
        own = f"{headers[HIDDEN][:16]}{_ring_tag(view.ring)}"
        headers["ETag"] = f'W/"{revision}-{"all" if view.include_disabled else "active"}-{own}"'
    if if_none_match(request, headers.get("ETag", "")):
        return web.Response(status=304, headers=headers)
    headers["Content-Type"] = "application/json"
    coding = negotiate_encoding(request)
    reading = asyncio.ensure_future(catalogs.body(tenant_id, check, view, ENCODINGS[coding]))
    if not (await asyncio.wait([reading], timeout=START_TIMEOUT))[0]:
        late = _late(reading, catalogs, tenant_id, check, view)
        return await _write_all(request, web.StreamResponse(headers=headers), late)
    if (body := reading.result()) is None:
        return await _write_all(request, web.StreamResponse(headers=headers), catalogs.stream(tenant_id, view))
    if body.encoding.name:
        headers["Content-Encoding"] = body.encoding.name
    headers["Content-Length"] = str(body.length)
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    return await _finish(request, response, send_blocks(request, body.blocks))


def png(request: web.Request, image: bytes, tag: str, cache_control: str) -> web.Response:
    """Respond with an image; 304 if `If-None-Match` has its tag."""
    headers = {"ETag": f'"{tag}"', "Cache-Control": cache_control}
    if if_none_match(request, headers["ETag"]):
        return web.Response(status=304, headers=headers)
    return web.Response(body=image, headers=headers, content_type="image/png")


def _ring_tag(ring: str) -> str:
    """Return the part of a tag that is a ring's, or of `ALL_RINGS`; "" for clients of tenants without rings."""
    return f"-{hashlib.sha256(ring.encode()).hexdigest()[:16]}" if ring else ""


async def _late(
    reading: asyncio.Future[CatalogBody | None],
    catalogs: CatalogCache,
    tenant_id: str,
    check: RevisionCheck[CatalogState],
    view: View,
) -> AsyncIterator[bytes]:
    """Yield a catalog that takes long to read, as plain JSON.

    Until then blanks, which JSON may begin with, keep the caller from timing out.
    """

    async def plain() -> CatalogBody | None:
        body = await reading
        return await catalogs.body(tenant_id, check, view, PLAIN) if body and body.encoding is not PLAIN else body

    plain_body = asyncio.ensure_future(plain())
    plain_body.add_done_callback(lambda done: done.cancelled() or done.exception())  # The caller may leave before.
    while not plain_body.done():
        yield b" "
        await asyncio.wait([plain_body], timeout=START_TIMEOUT)
    body = plain_body.result()
    async for block in _sliced(body.blocks) if body else catalogs.stream(tenant_id, view):
        yield block


async def _write_all(
    request: web.Request, response: web.StreamResponse, blocks: AsyncIterable[bytes]
) -> web.StreamResponse:
    """Write block after block, as fast as the client reads."""

    async def write() -> None:
        async for block in blocks:
            await response.write(block)

    await response.prepare(request)
    return await _finish(request, response, write())


async def _finish(request: web.Request, response: web.StreamResponse, sending: Awaitable[None]) -> web.StreamResponse:
    """End a response after its body. Errors of the database or the disk close the connection."""
    try:
        await sending
        await response.write_eof()
    except ConnectionError:
        raise  # The caller is gone.
    except (MongoError, OSError, EOFError) as error:
        # The status is sent already, so only a broken connection can signal the error.
        log.error("answer_broke_off", error=type(error).__name__)
        if request.transport is not None:
            request.transport.abort()
    return response


async def _sliced(blocks: Iterable[Block]) -> AsyncIterator[bytes]:
    """Yield the blocks as bytes, at most `SLICE` of a file at once."""
    for block in blocks:
        if not isinstance(block, FileRange):
            yield block
            continue
        for start in range(block.start, block.start + block.length, SLICE):
            length = min(SLICE, block.start + block.length - start)
            yield await asyncio.to_thread(read_blocks, [FileRange(block.file, start, length)])
