"""A service that is asked to stop says so first, serves on meanwhile, and ends what was begun."""

import asyncio
import os
from pathlib import Path
from signal import SIGTERM
from tempfile import TemporaryDirectory
from uuid import uuid4

from aiohttp import ClientConnectionError, ClientSession, UnixConnector

from tests.support.factories import make_caller
from tests.support.processes.direct import direct
from tests.support.processes.fleet import Fleet
from tests.support.samples.held import HeldChunk
from tests.support.waiting import until

SIZE = 3 << 20  # bytes; half of it is more than what is written at once
ALIVE = (200, {"status": "alive"})
STOPPING = (503, {"status": "stopping"})


class Socket:
    """One address of a service, asked on a new connection each time."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def told(self, probe: str) -> tuple[int, dict[str, str]] | None:
        """The answer to a probe; None where nobody listens."""
        try:
            async with (
                ClientSession(connector=UnixConnector(self.path)) as session,
                session.get(f"http://localhost/{probe}") as answer,
            ):
                return answer.status, await answer.json()
        except ClientConnectionError:
            return None


async def test_who_stops_says_so_at_once_serves_on_and_ends_what_was_begun(running_fleet: Fleet) -> None:
    caller, file_id, content = make_caller(), uuid4().hex, os.urandom(SIZE)
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        apart = Socket(str(Path(folder) / "apart.sock"))
        environment = {"MANAGEMENT_LISTEN": f"unix:{apart.path}"}
        replica = await running_fleet.add("upload_service", environment=environment, aside=True)
        main = Socket(replica.address.removeprefix("unix:"))
        async with direct(running_fleet, replica) as api:
            held = HeldChunk(api, caller, file_id, content, 0, len(content))
            transfers = running_fleet.stores.installers / caller.tenant_id / "transfers"

            async def begun() -> bool:
                return any(path.stat().st_size for path in transfers.glob("*/*"))

            await until(begun)
            replica.send(SIGTERM)

            async def says_so_and_serves_on() -> bool:
                told = apart.told("readyz"), main.told("readyz"), main.told("livez")
                return tuple(await asyncio.gather(*told)) == (STOPPING, STOPPING, ALIVE)

            await until(says_so_and_serves_on)

            async def closed() -> bool:
                return await main.told("livez") is None

            await until(closed)
            assert await apart.told("readyz") == STOPPING
            assert await apart.told("livez") == ALIVE
            answer = await held.go_on()
            assert (answer.status, answer.body["complete"]) == (200, True)
        assert await replica.ended() == 0
        await running_fleet.remove(replica)
