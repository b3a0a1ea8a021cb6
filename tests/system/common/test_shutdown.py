"""A stopping service reports it first, still answers requests, and finishes running ones."""

import asyncio
import json
import os
import sys
from pathlib import Path
from signal import SIGTERM
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from aiohttp import ClientConnectionError, ClientSession, UnixConnector, web

from common.http.connection_limits import Runner
from common.http.server import add_probes, serving
from common.telemetry import software_version
from tests.support.factories import make_caller
from tests.support.processes.cluster import Cluster
from tests.support.processes.replica_client import connect_to_replica
from tests.support.samples.stalled_chunk import StalledChunk
from tests.support.wait import until

SIZE = 3 << 20  # bytes; half of it is more than one write
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


@pytest.mark.full
async def test_a_stopping_process_finishes_its_requests(cluster: Cluster) -> None:
    caller, file_id, content = make_caller(), uuid4().hex, os.urandom(SIZE)
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        management = Socket(str(Path(folder) / "management.sock"))
        patches = {"common.http.server:DRAIN_TIMEOUT": 5, "common.http.server:SHUTDOWN_TIMEOUT": LIMIT}
        environment = {"MANAGEMENT_LISTEN": f"unix:{management.path}", "PATCHES": json.dumps(patches)}
        command = (sys.executable, "-m", "tests.support.processes.failpoints", "upload_service")
        replica = await cluster.add(
            "upload_service", environment=environment, command=command, receives_connections=False
        )
        main = Socket(replica.address.removeprefix("unix:"))
        async with connect_to_replica(cluster, replica) as api:
            held = StalledChunk(api, caller, file_id, content, 0, len(content))
            transfers = cluster.stores.installers / caller.tenant_id / "transfers"

            async def started() -> bool:
                return any(path.stat().st_size for path in transfers.glob("*/*"))

            await until(started)
            replica.send(SIGTERM)

            async def reports_stopping_and_is_alive() -> bool:
                answers = management.probe("readyz"), main.probe("readyz"), main.probe("livez")
                return tuple(await asyncio.gather(*answers)) == (STOPPING, STOPPING, ALIVE)

            await until(reports_stopping_and_is_alive)

            async def closed() -> bool:
                return await main.probe("livez") is None

            await until(closed)
            assert await management.probe("readyz") == STOPPING
            assert await management.probe("livez") == (200, {**ALIVE[1], "version": software_version()})
            answer = await held.resume()
            assert (answer.status, answer.body["complete"]) == (200, True)
        assert await replica.wait_for_exit() == 0
        await cluster.remove(replica)
