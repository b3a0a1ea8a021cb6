"""A tenant's scenario that covers every kind of step, with services that may be killed at any of them."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from aiohttp import ClientError
from yarl import URL

from tests.support.api import Answer, read_answer
from tests.support.processes.cluster import Cluster
from tests.support.processes.failpoint_control import StepControl
from tests.support.system.publishing import INSTALLER, Published, package_id, send_chunk
from tests.support.system.services import Api

TIMEOUT = 60.0  # seconds for one request or announcement with its retries
PAUSE = 0.05  # seconds between two attempts
LEASES = 20  # seconds after which every lease has expired; the sweeper waits longer


class RequestAbandoned(Exception):
    """A request failed, and the client does not retry."""


@dataclass(frozen=True)
class TenantScenario:
    """One tenant and the requests of its administrator."""

    cluster: Cluster
    steps: StepControl
    api: Api
    title: str

    @classmethod
    async def create(cls, cluster: Cluster, steps: StepControl, title: str) -> "TenantScenario":
        return cls(cluster, steps, await cluster.services.tenant(), title)

    async def run(self, *, retries: bool) -> None:
        """Add two versions, delete one by itself and one with its package, and check all answers.

        The second version moves through two rings, is held and resumed, and is rolled back.

        Raises RequestAbandoned for a failed request without `retries`.
        """
        name = package_id()
        package = {"package_id": name, "package_name": "Trap", "package_publisher": "Acme"}
        # The second status answers the retry of a request that succeeded without its answer arriving.
        await self._call(retries, (200, 401), "POST", "add_package", data=package)
        first = await self._publish(retries, name, "1", os.urandom(3000), chunk=1000)
        deletion = {"versions_uids": first.uid}
        await self._call(retries, (200, 404), "DELETE", "delete_package_version", name, data=deletion)
        await self._call(True, (404, 404), "GET", "get_specific_package_version", first.uid)
        await self._call(retries, (200, 200), "PATCH", "edit_settings", data={"rings": "pilot,everyone"})
        await self._release(retries, await self._publish(retries, name, "2", os.urandom(1000), chunk=1000))
        await self._call(retries, (200, 404), "DELETE", "delete_package", name)
        await self._call(True, (404, 404), "GET", "get_package_versions", name)

    async def _publish(self, retries: bool, name: str, version: str, content: bytes, *, chunk: int) -> Published:
        file_id, server_filename = uuid4().hex, ""
        for start in range(0, len(content), chunk):
            end = min(start + chunk, len(content))
            answer = await self._send(retries, partial(send_chunk, self.api, file_id, content, start, end))
            assert (answer.status, answer.body["received"]) == (200, end), (self.title, answer.body)
            server_filename = answer.body.get("server_filename", "")
        await self._wait_for_event(server_filename)
        form = {**INSTALLER, "package_version": version, "server_filename": server_filename}
        await self._call(retries, (201, 409), "POST", "add_package_version", name, data=form)
        [row] = (await self._call(True, (200, 200), "GET", "get_package_versions", name)).body
        published = Published(name, row["UID"], content)
        assert row["INSTALLER_SHA256"] == published.sha256, self.title
        downloaded = await self._send(True, lambda: self._fetch(row["INSTALLER_URL"]))
        assert downloaded.body == content, self.title
        return published

    async def _release(self, retries: bool, version: Published) -> None:
        """Change the stage of a version. Its file is downloaded only while the version is offered."""
        [row] = (await self._call(True, (200, 200), "GET", "get_package_versions", version.package_id)).body
        for operation, data, status in (
            ("promote_version", {"ring": "everyone"}, 200),
            ("hold_version", {"reason": "a fault"}, 404),
            ("resume_version", {}, 200),
            ("roll_back_version", {}, 404),
        ):
            await self._call(retries, (200, 200), "POST", operation, version.uid, data=data)
            downloaded = await self._send(True, lambda: self._fetch(row["INSTALLER_URL"]))
            assert downloaded.status == status, (self.title, operation, downloaded.body)

    async def _call(self, retries: bool, statuses: tuple[int, int], *call: str, **request: Any) -> Answer:
        attempts = 0

        async def send() -> Answer:
            nonlocal attempts
            attempts += 1
            return await self.api.call(*call, **request)

        answer = await self._send(retries, send)
        assert answer.status == statuses[0] or (attempts > 1 and answer.status == statuses[1]), (
            self.title,
            answer.body,
        )
        return answer

    async def _send(self, retries: bool, send: Callable[[], Awaitable[Answer]]) -> Answer:
        aged = False
        async with asyncio.timeout(TIMEOUT):
            while True:
                with suppress(ClientError, OSError):
                    answer = await send()
                    if answer.status < 500:
                        return answer
                if not retries:
                    raise RequestAbandoned
                if not aged:
                    await self.cluster.age_tenant(self.api.tenant_id, LEASES)
                    aged = True
                await asyncio.sleep(PAUSE)

    async def _fetch(self, url: str) -> Answer:
        async with self.api.session.get(URL(url, encoded=True)) as response:
            return await read_answer(response)

    async def _wait_for_event(self, server_filename: str) -> None:
        """Wait until the catalog has received the event of the file."""
        aged = False
        async with asyncio.timeout(TIMEOUT):
            while True:
                answer = await self._send(True, lambda: self.api.call("GET", "get_finished_uploads"))
                if [row["server_filename"] for row in answer.body] == [server_filename]:
                    return
                if self.steps.died and not aged:
                    await self.cluster.age_tenant(self.api.tenant_id, LEASES)
                    aged = True
                await asyncio.sleep(PAUSE)
