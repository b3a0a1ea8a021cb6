"""Loopback ports: choosing a free port, and waiting for a server's answer."""

import asyncio
import fcntl
import os
import secrets
import socket
import tempfile
from itertools import cycle, islice

from deploy.local.servers import POLL_INTERVAL, START_TIMEOUT

RANGE = range(20_000, 32_000)  # below Linux's ports for outgoing connections
_PORTS = islice(cycle(RANGE), secrets.randbelow(len(RANGE)), None)  # endless
# A process locks byte N of this file for port N until it exits. So parallel test processes, also of other runs, never
# choose the same port.
_LOCKS = os.open(f"{tempfile.gettempdir()}/pkgrepo-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)


def free_port() -> int:
    """A port that no server uses and no other test process chooses."""
    for port in islice(_PORTS, len(RANGE)):
        with socket.socket() as attempt:
            try:
                fcntl.lockf(_LOCKS, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
                attempt.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no port of {RANGE} is free")


async def wait_for_answer(port: int, request: bytes, prefix: bytes) -> None:
    """Wait until the server on `port` answers `request` with `prefix`. Raises TimeoutError."""
    async with asyncio.timeout(START_TIMEOUT):
        while True:
            if await _first_bytes(port, request, len(prefix)) == prefix:
                return
            await asyncio.sleep(POLL_INTERVAL)


async def _first_bytes(port: int, request: bytes, length: int) -> bytes:
    """The first `length` bytes of the answer, or none without a server.

    Docker accepts connections before the server in the container does, and closes them.
    """
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return b""
    try:
        writer.write(request)
        return await reader.readexactly(length)
    except (ConnectionError, asyncio.IncompleteReadError):
        return b""
    finally:
        writer.close()


async def wait_for_port(port: int) -> None:
    """Wait until a server accepts connections on `port`. Raises TimeoutError."""
    async with asyncio.timeout(START_TIMEOUT):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                await asyncio.sleep(POLL_INTERVAL)
            else:
                writer.close()
                return
