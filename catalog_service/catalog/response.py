"""How a catalog is answered: not at all where the caller has it already, soon, and never faster than it is read."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator

from aiohttp import web

from catalog_service.catalog.cache import CatalogBody, Snapshots
from catalog_service.catalog.compression import ENCODINGS, PLAIN
from catalog_service.catalog.snapshot import View
from catalog_service.revisions.model import Look
from common.auth.callers import HIDDEN, hidden_digest
from common.http.bodies import if_none_match, negotiate_encoding
from common.http.middleware import caller_of
from common.mongo import MongoError
from common.telemetry import log

KEPT = "private, no-cache"  # by who asked, to be asked about each time
KEPT_FOR_GOOD = "private, max-age=31536000, immutable"  # what was asked for by its own name, never to be asked again
SOON = 2.0  # seconds after which an answer begins, be it there or not: it is waited for three
SLICE = 256 << 10  # bytes: as much of an answer as is on its way to one reader


async def catalog(request: web.Request, snapshots: Snapshots, view: View) -> web.StreamResponse:
    """The packages that a view shows, in an encoding that the caller accepts; 304 where `If-None-Match` has them."""
    tenant_id = caller_of(request).tenant_id
    look = await snapshots.look(tenant_id)
    headers = {"Vary": "Accept-Encoding", "Cache-Control": KEPT, HIDDEN: hidden_digest(view.hidden)}
    if look.revision:
        headers["ETag"] = _tag(look.revision, view, headers[HIDDEN])
    if if_none_match(request, headers.get("ETag", "")):
        return web.Response(status=304, headers=headers)
    headers["Content-Type"] = "application/json"
    coding = negotiate_encoding(request)
    making = asyncio.ensure_future(snapshots.answer(tenant_id, look, view, ENCODINGS[coding]))
    if not (await asyncio.wait([making], timeout=SOON))[0]:
        late = _late(making, snapshots, tenant_id, look, view)
        return await _sent(request, web.StreamResponse(headers=headers), late)
    if (answer := making.result()) is None:
        return await _sent(request, web.StreamResponse(headers=headers), snapshots.stream(tenant_id, view))
    if answer.encoding.name:
        headers["Content-Encoding"] = answer.encoding.name
    if answer.length <= SLICE:
        return web.Response(body=b"".join(answer.blocks), headers=headers)
    headers["Content-Length"] = str(answer.length)
    return await _sent(request, web.StreamResponse(headers=headers), _sliced(answer))


def _tag(revision: str, view: View, hidden: str) -> str:
    """What names that which a view shows at a revision.

    It is weak: compressed, the same may be other bytes at another replica, and it is one for all encodings.
    """
    return f'W/"{revision}-{"all" if view.include_disabled else "active"}-{hidden[:16]}"'


async def _late(
    making: asyncio.Future[CatalogBody | None], snapshots: Snapshots, tenant_id: str, look: Look, view: View
) -> AsyncIterator[bytes | memoryview]:
    """A catalog that takes long to be read, plain, once it is there.

    Who waits for it waits for us no longer than for one that is there: JSON may begin with blanks.
    """

    async def plain() -> CatalogBody | None:
        made = await making
        return await snapshots.answer(tenant_id, look, view, PLAIN) if made and made.encoding is not PLAIN else made

    waiting = asyncio.ensure_future(plain())
    waiting.add_done_callback(lambda done: done.cancelled() or done.exception())  # Who asked may go before that.
    while not waiting.done():
        yield b" "
        await asyncio.wait([waiting], timeout=SOON)
    answer = waiting.result()
    async for block in _sliced(answer) if answer else snapshots.stream(tenant_id, view):
        yield block


async def _sent(
    request: web.Request, response: web.StreamResponse, blocks: AsyncIterable[bytes | memoryview]
) -> web.StreamResponse:
    """Write block after block, each when its reader has taken the ones before."""
    await response.prepare(request)
    try:
        async for block in blocks:
            await response.write(block)
        await response.write_eof()
    except MongoError as error:
        # The status is out already: a broken connection is the only way left to say that this is not all.
        log.error("answer_broke_off", error=type(error).__name__)
        if request.transport is not None:
            request.transport.abort()
    return response


async def _sliced(answer: CatalogBody) -> AsyncIterator[bytes | memoryview]:
    """The same in blocks of at most `SLICE` bytes; small ones go together."""
    small = b""
    for block in answer.blocks:
        if len(small) + len(block) <= SLICE:
            small += block
            continue
        if small:
            yield small
            small = b""
        whole = memoryview(block)
        for start in range(0, len(whole), SLICE):
            yield whole[start : start + SLICE]
    if small:
        yield small
