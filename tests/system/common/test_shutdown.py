"""A stopping service reports it first, still answers requests, and finishes running ones."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from aiohttp import ClientConnectionError, ClientSession, UnixConnector, web

from common.http.connection_limits import Runner
from common.http.server import add_probes, serving
from tests.support.wait import until

LIMIT = 60  # seconds; reached only when something hangs
READY = (200, {"status": "ready"})
ALIVE = (200, {"status": "alive"})
STOPPING = (503, {"status": "stopping"})


class Socket:
    """One address of a service. Each request uses a new connection."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def probe(self, probe: str) -> tuple[int, dict[str, str]] | None:
        """The answer to a probe. None if nothing listens."""
        try:
            async with (
                ClientSession(connector=UnixConnector(self.path)) as session,
                session.get(f"http://localhost/{probe}") as answer,
            ):
                return answer.status, await answer.json()
        except ClientConnectionError:
            return None


async def test_a_stopping_service_answers_until_its_drain_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    started, finish, drained = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(_: web.Request) -> web.Response:
        started.set()
        await finish.wait()
        return web.Response(text="done")

    async def drain(_: Runner, seconds: float) -> None:
        assert seconds == 2
        await drained.wait()

    monkeypatch.setattr(Runner, "drain", drain)
    app = web.Application()
    app.router.add_get("/hold", hold)
    add_probes(app)
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        path = str(Path(folder) / "service.sock")
        socket, service = Socket(path), serving(app, f"unix:{path}", drain=2)
        await service.__aenter__()
        assert await socket.probe("readyz") == READY
        async with ClientSession("http://localhost", connector=UnixConnector(path)) as session, asyncio.timeout(LIMIT):
            held = asyncio.create_task(session.get("/hold"))
            await started.wait()
            stopping = asyncio.create_task(service.__aexit__(None, None, None))

            async def reports_stopping() -> bool:
                return await socket.probe("readyz") == STOPPING

            await until(reports_stopping)
            assert await socket.probe("livez") == ALIVE
            drained.set()

            async def closed() -> bool:
                return await socket.probe("livez") is None

            await until(closed)
            finish.set()
            async with await held as answer:
                assert (answer.status, await answer.text()) == (200, "done")
            await stopping
