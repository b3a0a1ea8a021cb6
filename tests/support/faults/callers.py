"""Concurrent callers of every kind, for tests that replace services meanwhile. Counts requests and failures."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from aiohttp import ClientError
from yarl import URL

from tests.support.api import Answer
from tests.support.system.publishing import Published, add_package, package_id, publish, version_of
from tests.support.system.services import PASSWORD, Api

CHUNK = 1 << 19  # bytes
PAUSE = 0.02  # seconds between two requests of one caller


@dataclass(frozen=True)
class CountingApi(Api):
    """An Api that counts `requests` by operation, and `failures` by operation and reason."""

    requests: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    def anonymous(self) -> "CountingApi":
        return replace(self, headers={})

    async def call(self, method: str, operation: str, *segments: str, **request: Any) -> Answer:
        self.requests[operation] += 1
        try:
            answer = await super().call(method, operation, *segments, **request)
        except (ClientError, OSError) as error:
            self.failures[f"{operation}: {error!r}"] += 1
            raise
        if answer.status >= 400:
            self.failures[f"{operation}: {answer.status} {answer.body}"] += 1
        return answer

    async def fetch(self, url: str) -> bytes:
        """Download an installer without a token."""
        self.requests["download"] += 1
        try:
            async with self.session.get(URL(url, encoded=True)) as answer:
                if answer.status != 200:
                    self.failures[f"download: {answer.status}"] += 1
                return await answer.read()
        except (ClientError, OSError) as error:
            self.failures[f"download: {error!r}"] += 1
            raise


@asynccontextmanager
async def run_callers(api: Api) -> AsyncIterator[CountingApi]:
    """Run an administrator, a publisher, clients and sign-ins in a loop within the block."""
    counting_api = CountingApi(api.session, api.base_url, api.tenant_id, api.deployment, api.headers)
    name, stopping = package_id(), asyncio.Event()
    await add_package(counting_api, name)
    published = await publish(counting_api, name, content=os.urandom(3 * CHUNK))
    token = (await counting_api.call("POST", "add_client", data={"client_name": f"{name}.example"})).body["auth_token"]
    user = {"username": name.lower(), "password": PASSWORD}
    await counting_api.call("POST", "add_user", data=user)
    kinds = (
        lambda: counting_api.call("GET", "test"),
        lambda: counting_api.anonymous().call("POST", "get_packages", data={"auth_token": token, "client": "1"}),
        lambda: counting_api.anonymous().call("POST", "client_version", data={"auth_token": token}),
        lambda: counting_api.call("POST", "login", data=user),
        lambda: _download(counting_api, published),
        lambda: _publish(counting_api),
    )

    async def repeat(kind: Callable[[], Awaitable[object]]) -> None:
        for _ in count():
            if stopping.is_set():
                return
            with suppress(ClientError, OSError, AssertionError, KeyError):  # already counted
                await kind()
            await asyncio.sleep(PAUSE)

    async with asyncio.TaskGroup() as group:
        for kind in kinds:
            group.create_task(repeat(kind))
        yield counting_api
        stopping.set()


async def _download(api: CountingApi, published: Published) -> None:
    version = await version_of(api, published)
    if await api.fetch(version["INSTALLER_URL"]) != published.content:
        api.failures["download: wrong bytes"] += 1


async def _publish(api: CountingApi) -> None:
    """Add a package with a version, and delete it."""
    name = package_id()
    await add_package(api, name)
    await publish(api, name, content=os.urandom(2 * CHUNK))
    await api.call("DELETE", "delete_package", name)
