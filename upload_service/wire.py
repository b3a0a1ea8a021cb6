"""The answers of upload_service, as callers see them."""

import re
from pathlib import Path
from typing import Any

from aiohttp import ETag, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web_request import BaseRequest

from upload_service.forms import InstallerForm
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


class InstallerResponse(web.FileResponse):
    """An installer's bytes, whole or in part, with the SHA-256 as the ETag.

    aiohttp makes an ETag of its own from the file's time, so conditions are decided here, and of the request only the
    range is passed on.
    """

    def __init__(self, path: Path, *, sha256: str, file_name: str) -> None:
        super().__init__(
            path,
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Disposition": f'attachment; filename="{file_name}"',
                "Cache-Control": "private",
                "X-Content-Type-Options": "nosniff",
            },
        )
        self._sha256 = sha256

    @property
    def etag(self) -> ETag | None:
        return ETag(self._sha256)

    @etag.setter
    def etag(self, value: ETag | str | None) -> None:
        self.headers["ETag"] = f'"{self._sha256}"'

    async def prepare(self, request: BaseRequest) -> AbstractStreamWriter | None:
        wanted = _wanted_range(request, self._sha256)
        return await super().prepare(request.clone(headers={"Range": wanted[0]} if wanted else {}))


def not_modified(request: web.Request, sha256: str) -> web.Response | None:
    """The 304 where the caller has the file already; None where the file is wanted. Raises PreconditionFailed."""
    if (wanted := request.if_match) is not None and not _names(wanted, sha256, weak=False):
        raise PreconditionFailed
    if (known := request.if_none_match) is not None and _names(known, sha256, weak=True):
        return web.Response(status=304, headers={"ETag": f'"{sha256}"', "Cache-Control": "private"})
    return None


def check_range(request: web.Request, sha256: str, size: int) -> None:
    """Raise RangeNotSatisfiable where the file has not one byte of the range that is asked for."""
    if wanted := _wanted_range(request, sha256):
        first, _, last_bytes = wanted.groups()
        if int(first) >= size if first else int(last_bytes) == 0:
            raise RangeNotSatisfiable(size)


def _wanted_range(request: BaseRequest, sha256: str) -> re.Match[str] | None:
    """The range; None for the whole file, as for several ranges, what is no range, or a part of another file."""
    wanted = _RANGE.fullmatch(request.headers.get("Range", ""))
    if wanted is None or request.headers.get("If-Range", f'"{sha256}"').strip() != f'"{sha256}"':
        return None
    first, last, _ = wanted.groups()
    return None if last and int(last) < int(first) else wanted


def _names(etags: tuple[ETag, ...], sha256: str, *, weak: bool) -> bool:
    return any(etag.value in {"*", sha256} and (weak or not etag.is_weak) for etag in etags)
