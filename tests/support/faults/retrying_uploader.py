"""A client that retries: after an error it asks for the offset of its transfer, and continues there."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

from aiohttp import ClientError

from tests.support.api import Answer
from tests.support.system.publishing import INSTALLER, Published, send_chunk
from tests.support.system.services import Api

TIMEOUT = 60.0  # seconds for one request with its retries
PAUSE = 0.05  # seconds between two attempts

Request = Callable[[], Awaitable[Answer]]


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
        return await self.retry(partial(self.api.call, method, operation, *segments, **request))

    async def retry(self, request: Request) -> Answer:
        async with asyncio.timeout(TIMEOUT):
            while True:
                if answer := await self.attempt(request):
                    return answer
                await asyncio.sleep(PAUSE)

    async def attempt(self, request: Request) -> Answer | None:
        """Send a request once. Returns None for a failure, which is counted."""
        try:
            answer = await request()
        except (ClientError, OSError) as error:
            self.failures[type(error).__name__] += 1
            return None
        if answer.status < 500:
            return answer
        self.failures[f"{answer.status} {answer.body.get('detail', '') if isinstance(answer.body, dict) else ''}"] += 1
        return None

    async def upload(self, content: bytes, *, chunk: int = 1 << 20, file_id: str | None = None) -> str:
        """Upload a file in chunks. Returns its server filename; raises RequestRejected."""
        file_id, start = file_id or uuid4().hex, 0
        async with asyncio.timeout(TIMEOUT):
            while True:
                end = min(start + chunk, len(content))
                answer = await self.attempt(partial(send_chunk, self.api, file_id, content, start, end))
                if answer is None:
                    await asyncio.sleep(PAUSE)
                    answer = await self.call("GET", "upload_package_version", headers={"X-File-ID": file_id})
                    start = 0 if answer.status == 404 else answer.body["received"]
                elif answer.status == 200 or answer.body["code"] == "unexpected_chunk":
                    start = answer.body["received"]  # Of an unexpected chunk, an earlier attempt succeeded after all.
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
            uid = next(row["UID"] for row in versions.body if row["VERSION"] == version)
            return Published(package_id, uid, content)
        if answer.status != 201:
            raise RequestRejected(answer)
        return Published(package_id, answer.body["UID"], content)
