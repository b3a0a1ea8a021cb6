"""A TCP proxy on loopback that fails on request, to simulate network failures.

It balances connections over its targets, and skips targets that refuse a connection.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from enum import StrEnum

from tests.support.servers.ports import free_port

BLOCK = 1 << 16  # bytes
CONNECT_TIMEOUT = 10.0  # seconds for one target


class Mode(StrEnum):
    """The treatment of existing and new connections.

    HALF_OPEN: data and ends of connections are delayed until the mode changes. BLACK_HOLE: data is accepted and lost;
    the connections are reset when the mode changes. RESET: connections are reset, new ones after they are accepted.
    REFUSE: connections are reset, and nothing listens.
    """

    PASS = "pass"
    HALF_OPEN = "half-open"
    BLACK_HOLE = "black hole"
    RESET = "reset"
    REFUSE = "refuse"


class Proxy:
    """A listening proxy; opened by `run_proxy`.

    `targets` are addresses, `host:port` or `unix:/path`. `latency` is the delay of each block in seconds. Both may
    change at any time.
    """

    def __init__(self, targets: Sequence[str]) -> None:
        self.targets = list(targets)
        self.latency = 0.0
        self.mode = Mode.PASS
        self.port = free_port()
        self._next_target = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def set_mode(self, mode: Mode) -> None:
        """Change the mode. RESET, REFUSE and the end of BLACK_HOLE reset open connections."""
        before, self.mode = self.mode, mode
        if mode is Mode.REFUSE:
            await self._stop_listening()
        elif self._server is None:
            await self._listen()
        if mode in {Mode.RESET, Mode.REFUSE} or (before is Mode.BLACK_HOLE and mode is not before):
            await self.reset_connections()
        if mode is Mode.HALF_OPEN:
            self._flowing.clear()
        else:
            self._flowing.set()

    @asynccontextmanager
    async def fail(self, mode: Mode) -> AsyncIterator[None]:
        """Use this mode within the block."""
        await self.set_mode(mode)
        try:
            yield
        finally:
            await self.set_mode(Mode.PASS)

    async def reset_connections(self) -> None:
        """Reset the open connections once."""
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=BLOCK)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The task counts from now until it is done, so that the end of the proxy waits for all of it.
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        connection.add_done_callback(
            lambda _: writer.close()
        )  # A task that is cancelled before it starts closes nothing.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            await self._connect(reader, writer, writers)
        except (OSError, asyncio.CancelledError):
            for opened in writers:
                _reset(opened)
        finally:
            for opened in writers:
                opened.close()
                with suppress(OSError, asyncio.CancelledError):
                    await opened.wait_closed()

    async def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, writers: list[asyncio.StreamWriter]
    ) -> None:
        """Forward data between a connection and a target until both end. Raises OSError."""
        if self.mode is Mode.RESET:
            raise ConnectionResetError
        if self.mode is Mode.BLACK_HOLE:
            while await reader.read(BLOCK):
                pass
            return
        await self._flowing.wait()
        target_reader, target_writer = await self._connect_to_target()
        writers.append(target_writer)
        directions = [
            asyncio.create_task(self._forward(reader, target_writer)),
            asyncio.create_task(self._forward(target_reader, writer)),
        ]
        try:
            await asyncio.gather(*directions)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    async def _connect_to_target(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the next target that accepts. Raises ConnectionRefusedError."""
        self._next_target += 1
        for number in range(len(self.targets)):
            target = self.targets[(self._next_target + number) % len(self.targets)]
            with suppress(OSError):  # TimeoutError is one.
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    if target.startswith("unix:"):
                        return await asyncio.open_unix_connection(target.removeprefix("unix:"), limit=BLOCK)
                    host, _, port = target.rpartition(":")
                    return await asyncio.open_connection(host, int(port), limit=BLOCK)
        raise ConnectionRefusedError

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            block = await reader.read(BLOCK)
            await self._flowing.wait()
            if self.mode is Mode.BLACK_HOLE and block:
                continue
            if self.latency:
                await asyncio.sleep(self.latency)
            if not block:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            writer.write(block)
            await writer.drain()


@asynccontextmanager
async def run_proxy(*targets: str) -> AsyncIterator[Proxy]:
    """Run a proxy for these targets. Open connections are reset at the end."""
    opened = Proxy(targets)
    await opened.set_mode(Mode.PASS)
    try:
        yield opened
    finally:
        await opened.set_mode(Mode.REFUSE)


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST instead of FIN, and discard unsent data."""
    connection = writer.get_extra_info("socket")
    if connection.family == socket.AF_INET and not writer.transport.is_closing():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
