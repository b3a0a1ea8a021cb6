"""One process of a service, with its log in a file. Tests start, kill, stop and continue it."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector

from deploy.local.servers import POLL_INTERVAL, START_TIMEOUT, STOP_TIMEOUT, NotStarted
from tests.support.processes.fork_server import Program, start_program

SHOWN_LINES = 20  # of a log, in the text of an error


class Replica:
    """The process of a service, also after a restart.

    `address` has the format of the LISTEN setting; `command` starts the service.
    """

    def __init__(
        self, service: str, address: str, log: Path, environment: Mapping[str, str], command: Sequence[str] = ()
    ) -> None:
        self.service = service
        self.address = address
        self.log = log
        self.environment = {**environment, "LISTEN": address, "PYTHONUNBUFFERED": "1"}
        self.command = command or (sys.executable, "-m", service)
        self._process: Program | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.service} was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process without waiting until it is ready."""
        assert not self.is_running, f"{self.service} runs already"
        with self.log.open("a") as log:
            self._process = await start_program(self.command, env=self.environment, stdout=log)

    async def ready(self) -> None:
        """Wait until it accepts requests. Raises NotStarted if it exits, or is not ready within START_TIMEOUT."""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT):
                while self.is_running:
                    if await self.has_status("ready"):
                        return
                    await asyncio.sleep(POLL_INTERVAL)
        lines = self.log.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
        raise NotStarted("\n".join([f"{self.service} is not ready ({self.log}):", *lines]), lines)

    async def has_status(self, status: str) -> bool:
        """Whether its readiness probe reports this status: `ready`, `not ready` or `stopping`."""
        unix = self.address.startswith("unix:")
        connector = UnixConnector(self.address.removeprefix("unix:")) if unix else None
        with suppress(ClientError, OSError):
            async with (
                ClientSession(connector=connector, timeout=ClientTimeout(3)) as session,
                session.get(f"http://{'localhost' if unix else self.address}/readyz") as answer,
            ):
                return bool((await answer.json())["status"] == status)
        return False

    async def kill(self) -> None:
        """Send SIGKILL and wait until it exits."""
        self.send(signal.SIGKILL)
        await self.wait_for_exit()

    def pause(self) -> None:
        """Send SIGSTOP. Its connections stay open."""
        self.send(signal.SIGSTOP)

    @property
    def is_paused(self) -> bool:
        """Whether SIGSTOP has taken effect."""
        return Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "T"

    def resume(self) -> None:
        """Send SIGCONT."""
        self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        if self.is_running:
            os.kill(self.pid, number)

    async def wait_for_exit(self) -> int:
        """Wait until it exits. Returns the exit status, or the negative number of a signal."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> int:
        """Send SIGTERM and wait, at most twice STOP_TIMEOUT; then kill it."""
        if self._process is None:
            return 0
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(2 * STOP_TIMEOUT):
                return await self.wait_for_exit()
        except TimeoutError:
            await self.kill()
            return await self.wait_for_exit()

    async def restart(self) -> None:
        """Start it again after its exit, and wait until it is ready."""
        await self.wait_for_exit()
        await self.start()
        await self.ready()
