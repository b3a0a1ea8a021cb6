"""Loopback ports: how tests choose them, and how they see that a server answers on one."""

import asyncio
import secrets
import socket

from deploy.processes import POLL, START_LIMIT


def free_port() -> int:
    """A port that nobody has; below the range from which the kernel gives ports to outgoing connections."""
    while True:
        port = 20000 + secrets.randbelow(12000)
        with socket.socket() as attempt:
            try:
                attempt.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


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
