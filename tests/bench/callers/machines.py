"""Machines as winget's client is one: a new TLS 1.2 connection for each request, one request after another."""

import asyncio
import re
import socket
import ssl
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from tests.bench.callers.load import LIMIT, SteadyAnswers

TIMEOUT = 30.0  # seconds for one request
BLOCK = 64 << 10  # bytes
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def winget_context(authority: Path) -> ssl.SSLContext:
    """TLS as WinHTTP uses it for winget: at most TLS 1.2, and no session of an earlier connection."""
    context = ssl.create_default_context(cafile=authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


async def send_as_machines(
    port: int, context: ssl.SSLContext, requests: Sequence[Sequence[bytes]], *, rate: float | None = None
) -> SteadyAnswers:
    """Let one machine send each sequence of requests to localhost; all machines start at once.

    A machine sends `rate` requests a second, or fewer if it has waited for an answer; without a rate it never pauses. A
    response time begins before the connection is opened. Each machine is a thread, because TLS in a thread costs a
    third of asyncio's. Raises TimeoutError after LIMIT.
    """
    answers, start = SteadyAnswers(), Barrier(len(requests))
    with ThreadPoolExecutor(len(requests), "machine") as threads:
        loop, begun = asyncio.get_running_loop(), time.perf_counter()
        async with asyncio.timeout(LIMIT):
            machines = [loop.run_in_executor(threads, _run, port, context, each, rate, start) for each in requests]
            for results in await asyncio.gather(*machines):
                answers.seconds += [seconds for _, seconds in results]
                answers.statuses.update(status for status, _ in results)
        answers.elapsed = time.perf_counter() - begun
    return answers


def _run(
    port: int, context: ssl.SSLContext, requests: Sequence[bytes], rate: float | None, start: Barrier
) -> list[tuple[int, float]]:
    """Returns the status and the seconds of each request. Status 0 is a refused or lost connection."""
    results = []
    start.wait()
    begun = time.perf_counter()
    for number, request in enumerate(requests):
        if rate:
            time.sleep(max(0.0, begun + number / rate - time.perf_counter()))
        before = time.perf_counter()
        try:
            status = _send(port, context, request)
        except OSError:
            status = 0
        results.append((status, time.perf_counter() - before))
    return results


def _send(port: int, context: ssl.SSLContext, request: bytes) -> int:
    """Send a request on a new connection, read its whole answer, and close. Returns the status. Raises OSError."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(raw, server_hostname="localhost") as connection:
            connection.sendall(request)
            answer = bytearray()
            while b"\r\n\r\n" not in answer:
                answer += _receive(connection)
            head, _, body = bytes(answer).partition(b"\r\n\r\n")
            length = _LENGTH.search(head)
            missing = (int(length[1]) if length else 0) - len(body)
            while missing > 0:
                missing -= len(_receive(connection))
            return int(head.split(maxsplit=2)[1])


def _receive(connection: ssl.SSLSocket) -> bytes:
    block = connection.recv(BLOCK)
    if not block:
        raise ConnectionError("the server closed the connection before its answer was complete")
    return block
