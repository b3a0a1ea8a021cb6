"""How a catalog is answered: not at all where the caller has it already, and never faster than it is read."""

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Iterable

from aiohttp import web

from catalog_service.encodings import ENCODINGS, PLAIN, Encoding
from catalog_service.snapshot import View
from catalog_service.snapshots import Snapshots
from common.bodies import accepted_coding, has_already
from common.middleware import caller_of
from common.mongo import MongoError
from common.telemetry import log

KEPT = "private, no-cache"  # by who asked, to be asked about each time
SLICE = 256 << 10  # bytes: as much of an answer as is on its way to one reader


async def catalog(request: web.Request, snapshots: Snapshots, view: View) -> web.StreamResponse:
    """The packages that a view shows, in an encoding that the caller accepts; 304 where `If-None-Match` has them."""
    tenant_id = caller_of(request).tenant_id
    look = await snapshots.look(tenant_id)
    headers = {"Vary": "Accept-Encoding", "Cache-Control": KEPT}
    if look.revision:
        headers["ETag"] = _tag(look.revision, view)
    if has_already(request, headers.get("ETag", "")):
        return web.Response(status=304, headers=headers)
    answer = await snapshots.answer(tenant_id, look, view, ENCODINGS[accepted_coding(request)])
    encoding: Encoding = answer.encoding if answer else PLAIN
    headers["Content-Type"] = "application/json"
    if encoding.name:
        headers["Content-Encoding"] = encoding.name
    if answer is None:
        return await _sent(request, web.StreamResponse(headers=headers), snapshots.stream(tenant_id, view))
    if answer.length <= SLICE:
        return web.Response(body=b"".join(answer.blocks), headers=headers)
    headers["Content-Length"] = str(answer.length)
    return await _sent(request, web.StreamResponse(headers=headers), _sliced(answer.blocks))


def _tag(revision: str, view: View) -> str:
    """What names that which a view shows at a revision.

    It is weak: compressed, the same may be other bytes at another replica, and it is one for all encodings.
    """
    shown = "\n".join(("all" if view.include_disabled else "active", *sorted(view.hidden)))
    return f'W/"{revision}-{hashlib.blake2b(shown.encode(), digest_size=8).hexdigest()}"'


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


async def _sliced(blocks: Iterable[bytes]) -> AsyncIterator[bytes | memoryview]:
    """The same in blocks of at most `SLICE` bytes; small ones go together."""
    small = b""
    for block in blocks:
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
