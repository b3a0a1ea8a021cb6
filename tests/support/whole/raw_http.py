"""Requests as bytes on a socket: a client's library would put in order what is to arrive as it is."""

import asyncio
import json
import socket
from collections.abc import Mapping
from http.client import HTTPResponse
from io import BytesIO
from typing import Any, cast
from urllib.parse import urlsplit

from aiohttp import web

from tests.support.api import Answer, assert_no_internals


async def send_raw(
    address: str,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    to_the_end: bool = True,
) -> Answer:
    """Send a request line as it stands, and read the answer, or everything to the end of the connection."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {urlsplit(address).netloc}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    url = urlsplit(address)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        await writer.drain()
        return read_raw(await (reader.read() if to_the_end else read_one_answer(reader)), method)
    finally:
        writer.close()
        await writer.wait_closed()


async def read_one_answer(reader: asyncio.StreamReader) -> bytes:
    """One answer that says its length, of a connection that goes on."""
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]))


def read_raw(received: bytes, method: str) -> Answer:
    """The answer in these bytes."""
    response = HTTPResponse(cast("Any", _ResponseSocket(received)), method=method)
    response.begin()
    body = response.read()
    headers = dict(response.headers.items())
    is_json = headers.get("Content-Type", "").endswith("json") and body
    return assert_no_internals(Answer(response.status, headers, json.loads(body) if is_json else body))


async def read_slowly(address: str, *, pause: float) -> bytes:
    """What is answered to someone who takes 64 KiB, rests, and takes the next."""
    url = urlsplit(address)
    reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=32 << 10)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    taken = bytearray()
    try:
        while block := await reader.read(64 << 10):
            taken += block
            await asyncio.sleep(pause)
    finally:
        writer.close()
    return bytes(taken)


def shrink_send_buffer(request: web.Request) -> None:
    """Let what waits for a caller wait here rather than in the system."""
    assert request.transport is not None
    request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 10)


class _ResponseSocket:
    """What `http.client` takes for a socket."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, _mode: str) -> BytesIO:
        return BytesIO(self._received)
