"""A chunk whose sender pauses in the middle, like a stalled client."""

import asyncio
from collections.abc import AsyncIterator

from common.auth.internal_tokens import Caller
from tests.support.api import Answer
from tests.support.services.upload import UploadApi

BOUNDARY = "a-boundary"
HEAD = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="chunk"; filename="c"\r\n\r\n'.encode()
TAIL = f"\r\n--{BOUNDARY}--\r\n".encode()


class StalledChunk:
    """A request with half of its body sent."""

    def __init__(self, api: UploadApi, caller: Caller, file_id: str, data: bytes, start: int, total: int) -> None:
        self._data = data
        self._released = asyncio.Event()
        headers = {
            "X-File-ID": file_id,
            "Content-Range": f"bytes {start}-{start + len(data) - 1}/{total}",
            "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
        }
        call = api.service.call(caller, "POST", "upload_package_version", headers=headers, data=self._body())
        self._request = asyncio.create_task(call)

    async def resume(self) -> Answer:
        self._released.set()
        return await self.answer()

    async def answer(self) -> Answer:
        return await self._request

    async def cancel(self) -> None:
        self._request.cancel()
        await asyncio.wait([self._request])

    async def _body(self) -> AsyncIterator[bytes]:
        half = len(self._data) // 2
        yield HEAD + self._data[:half]
        await self._released.wait()
        yield self._data[half:] + TAIL
