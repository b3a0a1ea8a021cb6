"""Callers in a separate process that repeat a request until they are stopped.

python -m tests.bench.callers.polling <callers> <method> <address> <body> <header>…
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from tests.bench.callers.load import Call, Connection, open_connections
from tests.bench.servers.processes import Process
from tests.support.processes.replica import Replica


@asynccontextmanager
async def polling(call: Call, callers: int, log: Path) -> AsyncIterator[Process]:
    """Run callers that repeat a request. Their errors go to `log`."""
    headers = [f"{name}: {value}" for name, value in call.headers]
    command = [sys.executable, "-m", __name__, str(callers), call.method, call.url, call.body.decode(), *headers]
    replica = Replica("polling", "", log, {}, command)
    await replica.start()
    try:
        yield Process(replica.pid)
        if not replica.is_running:
            raise RuntimeError(f"the background callers failed: {log.read_text().splitlines()[-1:]}")
    finally:
        await replica.stop()


async def _poll(call: Call, callers: int) -> None:
    raw = call.encoded()
    async with open_connections(call.url, callers) as connections, asyncio.TaskGroup() as group:
        for connection in connections:
            group.create_task(_repeat(connection, raw))


async def _repeat(connection: Connection, raw: bytes) -> None:
    while True:
        answer = await connection.send(raw)
        assert answer.status == 200, answer


if __name__ == "__main__":
    many, method, url, body, *lines = sys.argv[1:]
    headers = tuple((name, value) for name, _, value in (line.partition(": ") for line in lines))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_poll(Call(method, url, headers, body.encode()), int(many)))
