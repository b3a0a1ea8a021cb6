"""A client that does not give up: on any error it asks where its transfer stands, and goes on from there."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from aiohttp import ClientError

from tests.support.api import Answer
from tests.support.whole.publishing import INSTALLER, Published, send_chunk
from tests.support.whole.services import Api

TIMEOUT = 60.0  # seconds for one request to come through
PAUSE = 0.05  # seconds between two tries


class RequestRejected(Exception):
    """An answer that asking again does not change."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status} {answer.body}")
        self.answer = answer


@dataclass(frozen=True)
class RetryingClient:
    """Sends installers and makes versions of them; `failures` counts what it had to try again, by what it was told."""

    api: Api
    failures: Counter[str] = field(default_factory=Counter)

    async def call(self, method: str, operation: str, *segments: str, **request: Any) -> Answer:
        """The first answer that is no server error. Raises TimeoutError after PATIENCE."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                if answer := await self._call_once(method, operation, *segments, **request):
                    return answer
                await asyncio.sleep(PAUSE)

    async def upload(self, content: bytes, *, chunk: int = 1 << 20, file_id: str | None = None) -> str:
        """Send a file in chunks; its server filename. Raises Refused."""
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
                    start = answer.body["received"]  # Another try of ours came through after all.
                else:
                    raise RequestRejected(answer)
                if answer.status == 200 and answer.body["complete"]:
                    return str(answer.body["server_filename"])

    async def publish(self, package_id: str, version: str, content: bytes, *, chunk: int = 1 << 20) -> Published:
        """Upload and make it a version, which is taken for ours where an earlier try made it. Raises Refused."""
        form = {**INSTALLER, "package_version": version}
        form["server_filename"] = await self.upload(content, chunk=chunk)
        answer = await self.call("POST", "add_package_version", package_id, data=form)
        if answer.status == 409:
            found = await self.call("GET", "get_package_versions", package_id)
            return Published(package_id, next(row["UID"] for row in found.body if row["VERSION"] == version), content)
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
