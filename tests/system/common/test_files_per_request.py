"""How many files of the product one request crosses, and how many calls between services it needs.

A newcomer reads these files to understand the request. The numbers may only fall: lower a limit after a change.
"""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from uuid import uuid4

from aiohttp.web_protocol import RequestHandler

from common.auth.internal_tokens import Callers
from tests.support.house import PACKAGES, ROOT
from tests.support.system.publishing import add_package, package_id, publish, publish_in_one_call, send_chunk
from tests.support.system.releases import set_policy
from tests.support.system.services import Api

REPETITIONS = 4  # Work that a request did not cause runs beside some of them, and a request's own files in each.
LIMITS = {"chunk": 35, "publication": 68, "catalog": 22, "promotion": 39}  # files
CALLS = 4  # received by services during a publication in one call
FOLDERS = tuple(f"{ROOT / package}/" for package in PACKAGES)
VERIFY = Callers.verify.__code__  # A service verifies each call once.


@dataclass
class Execution:
    """The files of the product that ran, and the number of calls that services received."""

    background: set[asyncio.Task[Any]]
    files: set[str] = field(default_factory=set)
    calls: int = 0

    def record(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(FOLDERS) and not self._in_background():
            self.files.add(frame.f_code.co_filename)
            self.calls += frame.f_code is VERIFY

    def _in_background(self) -> bool:
        return threading.current_thread() is threading.main_thread() and asyncio.current_task() in self.background


@contextmanager
def recorded() -> Iterator[Execution]:
    connections = RequestHandler.start.__qualname__  # They serve requests.
    others = {task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") != connections}
    execution = Execution(others)
    execution.background.discard(asyncio.current_task())
    threading.setprofile(execution.record)
    sys.setprofile(execution.record)
    try:
        yield execution
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def observe(request: Callable[[], Awaitable[object]]) -> Execution:
    """The files that run in each of several requests, and the fewest calls of one."""
    await request()  # fills caches
    executions = []
    for _ in range(REPETITIONS):
        with recorded() as execution:
            await request()
        executions.append(execution)
    files = set.intersection(*(execution.files for execution in executions))
    return Execution(set(), files, min(execution.calls for execution in executions))


async def send_first_chunk(api: Api) -> None:
    answer = await send_chunk(api, uuid4().hex, bytes(2000), 0, 1000)
    assert answer.status == 200, answer.body


async def read_catalog(api: Api) -> None:
    assert (await api.call("POST", "get_packages")).status == 200


async def test_a_request_crosses_few_files(tenant: Api) -> None:
    name = package_id()
    await add_package(tenant, name)
    await set_policy(tenant, "pilot,everyone", {"everyone": {"approvals": 0}})
    waiting = [await publish(tenant, name, f"1.{number}") for number in range(REPETITIONS + 1)]

    async def publish_one() -> None:
        await publish_in_one_call(tenant, name, f"2.{uuid4().hex[:6]}", content=bytes(1000))

    async def promote() -> None:
        answer = await tenant.call("POST", "promote_version", waiting.pop().uid, data={"ring": "everyone"})
        assert answer.status == 200, answer.body

    publication = await observe(publish_one)
    executions = {
        "chunk": await observe(lambda: send_first_chunk(tenant)),
        "publication": publication,
        "catalog": await observe(lambda: read_catalog(tenant)),
        "promotion": await observe(promote),
    }
    for each, execution in executions.items():
        paths = sorted(file.removeprefix(f"{ROOT}/") for file in execution.files)
        assert len(paths) <= LIMITS[each], f"{each}: {len(paths)} files\n" + "\n".join(paths)
    assert publication.calls <= CALLS
