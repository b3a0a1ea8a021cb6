"""The answers of upload_service, as callers see them."""

import re
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Any

from aiohttp import ETag, web

from common.errors import Problem
from common.http.zero_copy import send_file
from common.telemetry import log
from upload_service.downloads.service import OpenFile
from upload_service.forms import InstallerForm
from upload_service.inspection.inspector import Inspection
from upload_service.model import PreconditionFailed, RangeNotSatisfiable, Status, Upload

_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))")


def progress(upload: Upload) -> dict[str, Any]:
    """Where a transfer stands: the answer to a chunk, and to the question after it."""
    if upload.status is Status.OPEN:
        return {"Message": "Chunk received", "received": upload.offset, "total": upload.total, "complete": False}
    return {
        "Message": "Upload complete",
        "received": upload.size,
        "total": upload.size,
        "complete": True,
        "server_filename": upload.server_filename,
        "sha256": upload.sha256,
    }


def stored(form: InstallerForm, upload: Upload | None) -> dict[str, Any]:
    """What a one-call form held; the file's part is null where it had no file."""
    return {
        "fields": form.fields,
        "server_filename": upload.server_filename if upload else None,
        "sha256": upload.sha256 if upload else None,
        "size": upload.size if upload else None,
    }


def inspection(found: Inspection) -> dict[str, Any]:
    """What was found in an installer, under the names of the fields that it would fill."""
    said = found.findings
    return {
        "server_filename": found.server_filename,
        "state": found.state,
        "reason": found.reason,
        "file_type": said.format,
        "file_architect": said.machine,
        "file_scope": said.reach,
        "package_version": said.version,
        "package_name": said.product_name,
        "package_publisher": said.publisher,
        "productcode": said.product_code,
        "upgradecode": said.upgrade_code,
        "package_family_name": said.package_family_name,
        "signature_sha256": said.signature_sha256,
        "nested": [{"file_nested_path": file.path, "file_type_nested": file.format} for file in said.nested],
        "signer": {**asdict(said.signer), "verified": False} if said.signer else None,
    }


def identifiers(found: Inspection) -> dict[str, str]:
    """By what Windows knows what an installer installed, as far as that was found already."""
    said = found.findings
    known = {
        "product_code": said.product_code,
        "upgrade_code": said.upgrade_code,
        "package_family_name": said.package_family_name,
        "signature_sha256": said.signature_sha256,
    }
    return {name: text for name, text in known.items() if text}


@dataclass(frozen=True)
class ByteRange:
    """The bytes of an installer that are asked for; `whole` where no range was, or none that counts."""

    start: int
    length: int
    whole: bool = False


async def send_installer(request: web.Request, opened: OpenFile, part: ByteRange, file_name: str) -> web.StreamResponse:
    """Answer with a part of an installer, the SHA-256 as its ETag. `opened` has nothing to send where HEAD asks."""
    upload = opened.upload
    response = web.StreamResponse(
        status=200 if part.whole else 206,
        headers={
            "Accept-Ranges": "bytes",
            "Cache-Control": "private",
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
        await _send_bytes(request, response, opened)
        await response.write_eof()
    except ConnectionError:
        raise  # The caller has gone.
    except (Problem, OSError, RuntimeError, EOFError) as error:
        # The status is out already: a broken connection is the only way left to say that this is not all.
        log.error("download_broke_off", server_filename=upload.server_filename, error=type(error).__name__)
        if request.transport is not None:
            request.transport.abort()
    return response


async def _send_bytes(request: web.Request, response: web.StreamResponse, opened: OpenFile) -> None:
    if isinstance(opened.content, AsyncIterator):
        async for block in opened.content:
            await response.write(block)
    else:
        await send_file(request, opened.content, opened.start, opened.length)


def not_modified(request: web.Request, sha256: str) -> web.Response | None:
    """The 304 where the caller has the file already; None where the file is wanted. Raises PreconditionFailed."""
    if (wanted := request.if_match) is not None and not _names(wanted, sha256, weak=False):
        raise PreconditionFailed
    if (known := request.if_none_match) is not None and _names(known, sha256, weak=True):
        return web.Response(status=304, headers={"ETag": f'"{sha256}"', "Cache-Control": "private"})
    return None


def requested_range(request: web.Request, sha256: str, size: int) -> ByteRange:
    """The part that is asked for. Raises RangeNotSatisfiable where the file has not one byte of it."""
    wanted = _wanted_range(request, sha256)
    if wanted is None:
        return ByteRange(0, size, whole=True)
    first, last, last_bytes = wanted.groups()
    start = int(first) if first else max(0, size - int(last_bytes))
    if start >= size:
        raise RangeNotSatisfiable(size)
    end = min(int(last), size - 1) if last else size - 1
    return ByteRange(start, end - start + 1)


def _wanted_range(request: web.Request, sha256: str) -> re.Match[str] | None:
    """The range; None for the whole file, as for several ranges, what is no range, or a part of another file."""
    wanted = _RANGE.fullmatch(request.headers.get("Range", ""))
    if wanted is None or request.headers.get("If-Range", f'"{sha256}"').strip() != f'"{sha256}"':
        return None
    first, last, _ = wanted.groups()
    return None if last and int(last) < int(first) else wanted


def _names(etags: tuple[ETag, ...], sha256: str, *, weak: bool) -> bool:
    return any(etag.value in {"*", sha256} and (weak or not etag.is_weak) for etag in etags)
