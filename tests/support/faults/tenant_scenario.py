"""Requests of a tenant that cover every kind of step, while a service is killed at any of them."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from uuid import uuid4

from yarl import URL

from tests.support.api import Answer, read_answer
from tests.support.faults.crash_steps import ONE_DAY, kill_at_steps, sample_steps
from tests.support.faults.results import Outcome
from tests.support.faults.retrying_uploader import PAUSE, TIMEOUT, RetryingClient
from tests.support.processes.cluster import Cluster
from tests.support.processes.failpoint_control import StepControl
from tests.support.system.publishing import INSTALLER, Published, package_id, send_chunk
from tests.support.system.services import Api

LEASES = 20  # seconds after which every lease has expired; the sweeper waits longer


class RequestAbandoned(Exception):
    """A request failed, and the client does not retry."""


async def kill_during_requests(cluster: Cluster, service: str, *, retries: bool, times: int = 100) -> Outcome:
    """Kill a service at each step of a tenant's requests, at most `times` times per kind.

    A client that retries gets the same answers as without a crash. Without retries, the services finish or undo
    incomplete work themselves within a day.
    """
    client = "the client retries" if retries else "the client gives up"
    outcome = Outcome(f"{service} killed at each of its steps, {client}")
    upload = partial(TenantScenario.create, cluster, "upload", retries)
    release = partial(TenantScenario.create, cluster, "release", retries)
    choose = partial(sample_steps, times=times)
    return await kill_at_steps(cluster, service, outcome, upload, release, age=ONE_DAY, choose=choose, recordings=3)


@dataclass(frozen=True)
class TenantScenario:
    """The requests of a tenant's administrator in one act. A failed request is repeated, or ends the act."""

    cluster: Cluster
    act: Literal["upload", "release"]
    retries: bool
    steps: StepControl
    api: Api

    @classmethod
    async def create(
        cls, cluster: Cluster, act: Literal["upload", "release"], retries: bool, steps: StepControl
    ) -> "TenantScenario":
        return cls(cluster, act, retries, steps, await cluster.services.tenant())

    async def run(self) -> list[str]:
        act = {"upload": self.upload, "release": self.release}[self.act]
        try:
            await act(package_id())
        except RequestAbandoned:
            pass
        except (AssertionError, TimeoutError) as error:
            return [repr(error)]
        return []

    async def check(self) -> list[str]:
        return []

    async def upload(self, name: str) -> None:
        """Add a version in three chunks, and delete it."""
        await self._add_package(name)
        version = await self._publish(name, "1", os.urandom(3000))
        deletion = {"versions_uids": version.uid}
        await self._change((200, 404), "DELETE", "delete_package_version", name, data=deletion)
        assert (await self._read("get_specific_package_version", version.uid)).status == 404

    async def release(self, name: str) -> None:
        """Move a version through two rings, hold, resume and roll it back, and delete its package."""
        await self._add_package(name)
        await self._change((200, 200), "PATCH", "edit_settings", data={"rings": "pilot,everyone"})
        version = await self._publish(name, "2", os.urandom(1000))
        [row] = (await self._read("get_package_versions", name)).body
        for operation, data, status in (
            ("promote_version", {"ring": "everyone"}, 200),
            ("hold_version", {"reason": "a fault"}, 404),
            ("resume_version", {}, 200),
            ("roll_back_version", {}, 404),
        ):
            await self._change((200, 200), "POST", operation, version.uid, data=data)
            downloaded = await self._fetch(row["INSTALLER_URL"])
            assert downloaded.status == status, (operation, downloaded.body)
        await self._change((200, 404), "DELETE", "delete_package", name)
        assert (await self._read("get_package_versions", name)).status == 404

    async def _add_package(self, name: str) -> None:
        form = {"package_id": name, "package_name": "Trap", "package_publisher": "Acme"}
        await self._change((200, 401), "POST", "add_package", data=form)

    async def _publish(self, name: str, version: str, content: bytes) -> Published:
        file_id, server_filename = uuid4().hex, ""
        for start in range(0, len(content), 1000):
            send = partial(send_chunk, self.api, file_id, content, start, start + 1000)
            answer = await self._send(send, retries=self.retries)
            assert (answer.status, answer.body["received"]) == (200, start + 1000), answer.body
            server_filename = answer.body.get("server_filename", "")
        await self._wait_for_event(server_filename)
        form = {**INSTALLER, "package_version": version, "server_filename": server_filename}
        await self._change((201, 409), "POST", "add_package_version", name, data=form)
        [row] = (await self._read("get_package_versions", name)).body
        published = Published(name, row["UID"], content)
        assert row["INSTALLER_SHA256"] == published.sha256
        assert (await self._fetch(row["INSTALLER_URL"])).body == content
        return published

    async def _change(self, statuses: tuple[int, int], *call: str, **request: Any) -> None:
        """Send a request. The second status answers the retry of one that succeeded without its answer arriving."""
        attempts = 0

        async def send() -> Answer:
            nonlocal attempts
            attempts += 1
            return await self.api.call(*call, **request)

        answer = await self._send(send, retries=self.retries)
        assert answer.status == statuses[0] or (attempts > 1 and answer.status == statuses[1]), (call, answer.body)

    async def _read(self, *call: str) -> Answer:
        return await self._send(partial(self.api.call, "GET", *call), retries=True)

    async def _fetch(self, url: str) -> Answer:
        async def fetch() -> Answer:
            async with self.api.session.get(URL(url, encoded=True)) as response:
                return await read_answer(response)

        return await self._send(fetch, retries=True)

    async def _send(self, request: Callable[[], Awaitable[Answer]], *, retries: bool) -> Answer:
        """Send a request. After its first failure, the leases of the killed service have expired."""
        client = RetryingClient(self.api)
        answer = await client.attempt(request)
        if answer is None:
            if not retries:
                raise RequestAbandoned
            await self.cluster.age_tenant(self.api.tenant_id, LEASES)
            answer = await client.retry(request)
        return answer

    async def _wait_for_event(self, server_filename: str) -> None:
        """Wait until the catalog has received the event of the file."""
        aged = False
        async with asyncio.timeout(TIMEOUT):
            while True:
                answer = await self._read("get_finished_uploads")
                if [row["server_filename"] for row in answer.body] == [server_filename]:
                    return
                if self.steps.died and not aged:
                    await self.cluster.age_tenant(self.api.tenant_id, LEASES)
                    aged = True
                await asyncio.sleep(PAUSE)
