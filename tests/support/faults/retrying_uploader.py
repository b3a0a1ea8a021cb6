"""A client that retries: after an error it asks for the offset of its transfer, and continues there."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from aiohttp import ClientError

from tests.support.api import Answer
from tests.support.system.publishing import INSTALLER, Published, send_chunk
from tests.support.system.services import Api

TIMEOUT = 60.0  # seconds for one request with its retries
PAUSE = 0.05  # seconds between two attempts


class RequestRejected(Exception):
    """An error response that a retry does not change."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status} {answer.body}")
        self.answer = answer


@dataclass(frozen=True)
class RetryingClient:
    """Uploads installers and adds versions. `failures` counts the retried requests by reason."""

    api: Api
    failures: Counter[str] = field(default_factory=Counter)

    async def call(self, method: str, operation: str, *segments: str, **request: Any) -> Answer:
        """Repeat a request until the answer is no server error. Raises TimeoutError after TIMEOUT."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                if answer := await self._call_once(method, operation, *segments, **request):
                    return answer
                await asyncio.sleep(PAUSE)

    async def upload(self, content: bytes, *, chunk: int = 1 << 20, file_id: str | None = None) -> str:
        """Upload a file in chunks. Returns its server filename; raises RequestRejected."""
        file_id, start = file_id or uuid4().hex, 0
        async with asyncio.timeout(TIMEOUT):
            while True:
                answer = await self._send(file_id, content, start, min(start + chunk, len(content)))
                if answer is None:
                    await asyncio.sleep(PAUSE)
                    answer = await self.call("GET", "upload_package_version", headers={"X-File-ID": file_id})
                    start = 0 if answer.status == 404 else answer.body["received"]
                elif answer.status == 200:
                    start = answer.body["received"]
                elif answer.body["code"] == "unexpected_chunk":
                    start = answer.body["received"]  # An earlier attempt succeeded after all.
                else:
                    raise RequestRejected(answer)
                if answer.status == 200 and answer.body["complete"]:
                    return str(answer.body["server_filename"])

    async def publish(self, package_id: str, version: str, content: bytes, *, chunk: int = 1 << 20) -> Published:
        """Upload a file and add a version. An existing version is from an earlier attempt. Raises RequestRejected."""
        form = {**INSTALLER, "package_version": version}
        form["server_filename"] = await self.upload(content, chunk=chunk)
        answer = await self.call("POST", "add_package_version", package_id, data=form)
        if answer.status == 409:
            versions = await self.call("GET", "get_package_versions", package_id)
            return Published(
                package_id, next(row["UID"] for row in versions.body if row["VERSION"] == version), content
            )
        if answer.status != 201:
            raise RequestRejected(answer)
        return Published(package_id, answer.body["UID"], content)

    async def _send(self, file_id: str, content: bytes, start: int, end: int) -> Answer | None:
        try:
            return self._unless_server_error(await send_chunk(self.api, file_id, content, start, end))
        except (ClientError, OSError) as error:
            self.failures[type(error).__name__] += 1
            return None

    async def _call_once(self, method: str, operation: str, *segments: str, **request: Any) -> Answer | None:
        try:
            return self._unless_server_error(await self.api.call(method, operation, *segments, **request))
        except (ClientError, OSError) as error:
            self.failures[type(error).__name__] += 1
            return None

    def _unless_server_error(self, answer: Answer) -> Answer | None:
        if answer.status < 500:
            return answer
        self.failures[f"{answer.status} {answer.body.get('detail', '') if isinstance(answer.body, dict) else ''}"] += 1
        return None
