"""Loopback ports: how tests choose them, and how they see that a server answers on one."""

import asyncio
import os
import secrets
import socket
from itertools import cycle, islice

from deploy.processes import POLL, START_LIMIT

# Processes of tests that run beside each other have ranges of their own, below that which the kernel takes for outgoing
# connections; and none gives a port again soon, for who asked may not have taken it yet.
BESIDE = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4
RANGE = range(20_000 + 3_000 * BESIDE, 23_000 + 3_000 * BESIDE)
_PORTS = islice(cycle(RANGE), secrets.randbelow(len(RANGE)), None)


def free_port() -> int:
    """A port that nobody has."""
    for port in _PORTS:
        with socket.socket() as attempt:
            try:
                attempt.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("a cycle has no end")


async def answering(port: int, question: bytes, beginning: bytes) -> None:
    """Wait until the server on `port` answers `question` with bytes that begin so. Raises TimeoutError."""
    async with asyncio.timeout(START_LIMIT):
        while True:
            if await _ask(port, question, len(beginning)) == beginning:
                return
            await asyncio.sleep(POLL)


async def _ask(port: int, question: bytes, length: int) -> bytes:
    """The first `length` bytes of the answer, fewer if nobody listens or the connection ends.

    Docker takes connections before the server in the container does, and closes them.
    """
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return b""
    try:
        writer.write(question)
        return await reader.readexactly(length)
    except (ConnectionError, asyncio.IncompleteReadError):
        return b""
    finally:
        writer.close()
