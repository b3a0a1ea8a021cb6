"""A service in several processes on one port, for hosts without an orchestrator."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector

from tests.support.metrics import fetch_metrics
from tests.support.servers.ports import free_port
from tests.support.wait import until

NOTHING: Mapping[str, str] = {}
LIMIT = 60  # seconds; reached only when something hangs


@asynccontextmanager
async def gateways(
    redis_url: str, port: int, *, workers: int = 2, settings: Mapping[str, str] = NOTHING
) -> AsyncIterator[Process]:
    environment = {
        **os.environ,
        **dict.fromkeys(("INTERNAL_KEY", "SESSION_KEY"), "a-key-for-tests-long-enough-to-be-one"),
        "REDIS_URL": redis_url,
        "LISTEN": f"127.0.0.1:{port}",
        "WORKERS": str(workers),
        **settings,
    }
    command = sys.executable, "-m", "gateway"
    process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(LIMIT):
            await process.communicate()


def children(process: Process) -> set[int]:
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii")
    return set(map(int, text.split()))


def listeners(port: int) -> int:
    """The number of sockets that listen on a port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


async def answered(port: int, times: int) -> bool:
    """Whether all requests on `times` new connections are answered."""
    async with ClientSession(connector=TCPConnector(force_close=True)) as session:
        for _ in range(times):
            async with session.get(f"http://127.0.0.1:{port}/livez") as answer:
                if answer.status != 200:
                    return False
    return True


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
async def both(redis_url: str, port: int) -> AsyncIterator[Process]:
    """A gateway of two processes that both listen."""
    async with gateways(redis_url, port) as process:

        async def listening() -> bool:
            return listeners(port) == 2

        await until(listening, timeout=LIMIT)
        yield process


async def test_workers_share_a_port_are_replaced_and_stop_together(both: Process, port: int) -> None:
    assert len(children(both)) == 2
    assert await answered(port, 50)
    for number in (signal.SIGKILL, signal.SIGTERM):
        before = children(both)
        os.kill(next(iter(before)), number)

        async def replaced(before: set[int] = before) -> bool:
            return listeners(port) == 2 and len(children(both) - before) == 1

        await until(replaced, timeout=LIMIT)
        assert await answered(port, 50)
    both.terminate()
    async with asyncio.timeout(LIMIT):
        assert await both.wait() == 0
    assert listeners(port) == 0


@pytest.mark.full
async def test_any_worker_shows_the_metrics_of_all_workers_so_far(redis_url: str, port: int, tmp_path: Path) -> None:
    management = free_port()
    settings = {"MANAGEMENT_LISTEN": f"127.0.0.1:{management}", "TMPDIR": str(tmp_path)}
    async with (
        gateways(redis_url, port, settings=settings) as process,
        ClientSession(connector=TCPConnector(force_close=True)) as session,
    ):

        async def listening() -> bool:
            return listeners(port) == listeners(management) == 2

        async def shows_all_requests() -> bool:
            samples = [await fetch_metrics(session, f"http://127.0.0.1:{management}") for _ in range(8)]
            return {sample.value("pkgrepo_requests_total", status="404") for sample in samples} == {50}

        await until(listening, timeout=LIMIT)
        for _ in range(50):
            async with session.get(f"http://127.0.0.1:{port}/made-up/op") as answer:
                assert answer.status == 404
        await until(shows_all_requests, timeout=LIMIT)
        for worker in children(process):
            before = children(process)
            os.kill(worker, signal.SIGKILL)

            async def replaced(before: set[int] = before) -> bool:
                return listeners(management) == 2 and len(children(process) - before) == 1

            await until(replaced, timeout=LIMIT)
            assert await shows_all_requests()
        process.terminate()
        await process.wait()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
async def test_workers_stop_right_after_their_start(redis_url: str, port: int) -> None:
    async with gateways(redis_url, port) as process:

        async def has_workers() -> bool:
            return bool(children(process))

        await until(has_workers, timeout=LIMIT)
        process.terminate()
        async with asyncio.timeout(LIMIT):
            await process.wait()
    assert listeners(port) == 0


@pytest.mark.full
async def test_workers_do_not_outlive_a_killed_service(both: Process, port: int) -> None:
    both.kill()

    async def port_is_free() -> bool:
        return listeners(port) == 0

    await until(port_is_free, timeout=LIMIT)


@pytest.mark.full
async def test_the_service_exits_if_a_worker_cannot_start(redis_url: str, port: int) -> None:
    async with gateways(redis_url, port, workers=1) as first:

        async def listening() -> bool:
            return first.returncode is not None or listeners(port) == 1

        await until(listening, timeout=LIMIT)
        async with gateways(redis_url, port) as second:
            async with asyncio.timeout(LIMIT):
                _, errors = await second.communicate()
            assert second.returncode == 1
            assert b"address already in use" in errors
