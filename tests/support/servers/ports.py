"""Loopback ports: how tests choose them, and how they see that a server answers on one."""

import asyncio
import fcntl
import os
import secrets
import socket
import tempfile
from itertools import cycle, islice

from deploy.local.processes import POLL_INTERVAL, START_TIMEOUT

RANGE = range(20_000, 32_000)  # below the ports that Linux takes for outgoing connections
_PORTS = islice(cycle(RANGE), secrets.randbelow(len(RANGE)), None)  # endless
# Its byte N is locked by the process that has chosen port N, until that process ends. Tests in several processes, of
# several runs too, so never choose the same port.
_LOCKS = os.open(f"{tempfile.gettempdir()}/pkgrepo-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)


def free_port() -> int:
    """A port that no server has, and no other process of tests chooses."""
    for port in islice(_PORTS, len(RANGE)):
        with socket.socket() as attempt:
            try:
                fcntl.lockf(_LOCKS, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
                attempt.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no port of {RANGE} is free")


async def wait_for_answer(port: int, question: bytes, beginning: bytes) -> None:
    """Wait until the server on `port` answers `question` with bytes that begin so. Raises TimeoutError."""
    async with asyncio.timeout(START_TIMEOUT):
        while True:
            if await _first_bytes(port, question, len(beginning)) == beginning:
                return
            await asyncio.sleep(POLL_INTERVAL)


async def _first_bytes(port: int, question: bytes, length: int) -> bytes:
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
