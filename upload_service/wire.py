"""The answers of upload_service, as callers see them."""

import re
from pathlib import Path
from typing import Any

from aiohttp import ETag, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web_request import BaseRequest

from upload_service.forms import InstallerForm
from upload_service.model import Status, Upload

_RANGE = re.compile(r"bytes=(?:[0-9]{1,18}-[0-9]{0,18}|-[0-9]{1,18})")


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
        # Several ranges, or anything that is no range of bytes, may be answered with the whole file.
        wanted = _RANGE.fullmatch(request.headers.get("Range", ""))
        same = request.headers.get("If-Range", f'"{self._sha256}"').strip() == f'"{self._sha256}"'
        return await super().prepare(request.clone(headers={"Range": wanted[0]} if wanted and same else {}))


def not_modified(request: web.Request, sha256: str) -> web.Response | None:
    """The answer without a body where the caller's own copy decides: 304 or 412; None where the file is wanted."""
    headers = {"ETag": f'"{sha256}"', "Cache-Control": "private"}
    if (wanted := request.if_match) is not None and not _names(wanted, sha256, weak=False):
        return web.Response(status=412, headers=headers)
    if (known := request.if_none_match) is not None and _names(known, sha256, weak=True):
        return web.Response(status=304, headers=headers)
    return None


def _names(etags: tuple[ETag, ...], sha256: str, *, weak: bool) -> bool:
    return any(etag.value in {"*", sha256} and (weak or not etag.is_weak) for etag in etags)
