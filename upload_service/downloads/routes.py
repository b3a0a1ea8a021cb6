"""The request of a download: the whole installer or a range, conditional, redirected or sent."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from aiohttp import ETag, web

from common.auth.downloads import is_for_site
from common.errors import Problem
from common.http.middleware import CALLER
from common.http.zero_copy.responses import send_blocks, send_file, splice
from common.telemetry import log
from upload_service.downloads.service import Address, DownloadCounter, Downloads, ObjectBody, OpenFile
from upload_service.downloads.store import MongoDownloadStore
from upload_service.model import PreconditionFailed, RangeNotSatisfiable, Upload
from upload_service.outgoing.object_bodies import PAUSE
from upload_service.uploads.routes import TRANSFER_METRICS, count_bytes

DOWNLOADS = web.AppKey("downloads", Downloads)
DOWNLOAD_COUNTER: web.AppKey[DownloadCounter | None] = web.AppKey("download_counter")
DOWNLOAD_STORE = web.AppKey("download_store", MongoDownloadStore)

PRIVATE = "private"
SHARED = "public, max-age=3600, must-revalidate"  # Caches ask again in an hour, so a hold reaches them.

_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))")

routes = web.RouteTableDef()


@routes.get("/{tenant_id}/download/{server_filename:[^/]+}/{file_name:[^/]+}")
async def download(request: web.Request) -> web.StreamResponse:
    address = Address(
        **request.match_info, expires=request.query.get("expires", ""), signature=request.query.get("signature", "")
    )
    downloads = request.app[DOWNLOADS]
    upload = await downloads.find(address)
    is_for_caches = is_for_site(address.expires)
    # A cache keeps the bytes, which a redirect does not have.
    if not is_for_caches and (location := await downloads.redirect_address(upload, request.method)):
        if part := redirected_range(request, upload):
            _count_download(request, upload, part)
        return web.Response(status=307, headers={"Location": location, "Cache-Control": "no-store"})
    cache_control = SHARED if is_for_caches else PRIVATE
    if unchanged := not_modified(request, upload.sha256, cache_control):
        return unchanged
    byte_range = requested_range(request, upload.sha256, upload.size)
    length = 0 if request.method == "HEAD" else byte_range.length
    async with downloads.open(upload, byte_range.start, length) as file:
        with count_bytes(request.app[TRANSFER_METRICS].sent, lambda: request.writer.output_size):
            count = partial(_count_download, request, upload, byte_range)
            return await send_installer(request, file, byte_range, address.file_name, count, cache_control)


def _count_download(request: web.Request, upload: Upload, part: "ByteRange") -> None:
    """Count a part with the last byte: the whole file each time, because many machines may have one address.

    A range counts by the address of the client, which without a gateway is that of the connection: programs that load
    a file in pieces may load the last one twice.
    """
    counter = request.app[DOWNLOAD_COUNTER]
    if counter and part.reaches(upload.size):
        caller = request.get(CALLER)
        address = caller.ip if caller else request.remote or ""
        counter.count(upload, address if part.start else str(uuid4()))


@dataclass(frozen=True)
class ByteRange:
    """The requested bytes of an installer; `whole` without a range, or with one that is ignored."""

    start: int
    length: int
    whole: bool = False

    def reaches(self, end: int) -> bool:
        return self.start + self.length == end


async def send_installer(
    request: web.Request,
    file: OpenFile,
    part: ByteRange,
    file_name: str,
    on_sent: Callable[[], None] | None = None,
    cache_control: str = PRIVATE,
) -> web.StreamResponse:
    """Send a part of an installer, with its SHA-256 as ETag. For HEAD `file` has no bytes.

    `on_sent` is called after the last byte of the part was handed to the connection, not for HEAD.
    """
    upload = file.upload
    response = web.StreamResponse(
        status=200 if part.whole else 206,
        headers={
            "Accept-Ranges": "bytes",
            "Cache-Control": cache_control,
            "Content-Disposition": f'attachment; filename="{file_name}"',
            "Content-Length": str(part.length),
            "Content-Type": "application/octet-stream",
            "ETag": f'"{upload.sha256}"',
            "X-Content-Type-Options": "nosniff",
        },
    )
    if not part.whole:
        response.headers["Content-Range"] = f"bytes {part.start}-{part.start + part.length - 1}/{upload.size}"
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    try:
        await _send_bytes(request, response, file)
        await response.write_eof()
        if on_sent:
            on_sent()
    except ConnectionError:
        raise  # The caller is gone.
    except (Problem, OSError, RuntimeError, EOFError) as error:
        # The status was sent already: only a broken connection can tell that bytes are missing.
        log.error("download_broke_off", server_filename=upload.server_filename, error=type(error).__name__)
        if request.transport is not None:
            request.transport.abort()
    return response


async def _send_bytes(request: web.Request, response: web.StreamResponse, file: OpenFile) -> None:
    if isinstance(file.content, ObjectBody):
        await _splice_object(request, response, file, file.content)
    elif isinstance(file.content, AsyncIterator):
        async for block in file.content:
            await response.write(block)
    else:
        await send_file(request, file.content, file.start, file.length)


async def _splice_object(
    request: web.Request, response: web.StreamResponse, file: OpenFile, content: ObjectBody
) -> None:
    """Send a body that the system moves. If its connection breaks off, the rest is read."""
    body, sent_before = content.body, request.writer.output_size
    try:
        await send_blocks(request, body.blocks)
        if body.connection is not None:
            await splice(request, body.connection, body.rest, timeout=PAUSE)
    except (EOFError, TimeoutError):
        sent = request.writer.output_size - sent_before
        if sent == file.length:
            return
        async with aclosing(content.read(file.start + sent)) as blocks:
            async for block in blocks:
                await response.write(block)


def not_modified(request: web.Request, sha256: str, cache_control: str = PRIVATE) -> web.Response | None:
    """The 304 for a caller that has the file; None for others. Raises PreconditionFailed."""
    if (required := request.if_match) is not None and not _match(required, sha256, weak=False):
        raise PreconditionFailed
    if (known := request.if_none_match) is not None and _match(known, sha256, weak=True):
        return web.Response(status=304, headers={"ETag": f'"{sha256}"', "Cache-Control": cache_control})
    return None


def requested_range(request: web.Request, sha256: str, size: int) -> ByteRange:
    """The requested part: the whole file for several ranges, a malformed one, or a range of another file.

    Raises RangeNotSatisfiable if the file has no byte of it.
    """
    match, etag = _RANGE.fullmatch(request.headers.get("Range", "")), f'"{sha256}"'
    if match is None or request.headers.get("If-Range", etag).strip() != etag:
        return ByteRange(0, size, whole=True)
    first, last, last_bytes = match.groups()
    if last and int(last) < int(first):
        return ByteRange(0, size, whole=True)
    start = int(first) if first else max(0, size - int(last_bytes))
    if start >= size:
        raise RangeNotSatisfiable(size)
    end = min(int(last), size - 1) if last else size - 1
    return ByteRange(start, end - start + 1)


def redirected_range(request: web.Request, upload: Upload) -> ByteRange | None:
    """The range that the object storage will send, as far as the request shows it; None for no bytes."""
    try:
        if request.method != "GET" or not_modified(request, upload.sha256):
            return None
        return requested_range(request, upload.sha256, upload.size)
    except (PreconditionFailed, RangeNotSatisfiable):
        return None


def _match(etags: tuple[ETag, ...], sha256: str, *, weak: bool) -> bool:
    return any(etag.value in {"*", sha256} and (weak or not etag.is_weak) for etag in etags)
