"""Requests as bytes on a socket, because a client library would correct them."""

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
    until_closed: bool = True,
) -> Answer:
    """Send a request unchanged. Reads until the connection closes, or only one answer without `until_closed`."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {urlsplit(address).netloc}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    url = urlsplit(address)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        await writer.drain()
        return read_raw(await (reader.read() if until_closed else read_one_answer(reader)), method)
    finally:
        writer.close()
        await writer.wait_closed()


async def read_one_answer(reader: asyncio.StreamReader) -> bytes:
    """Read one answer with a Content-Length from an open connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]))


def read_raw(received: bytes, method: str) -> Answer:
    """Parse an answer."""
    response = HTTPResponse(cast("Any", _ResponseSocket(received)), method=method)
    response.begin()
    body = response.read()
    headers = dict(response.headers.items())
    is_json = headers.get("Content-Type", "").endswith("json") and body
    return assert_no_internals(Answer(response.status, headers, json.loads(body) if is_json else body))


async def read_slowly(address: str, *, pause: float) -> bytes:
    """Send a GET, and read the answer in blocks of 64 KiB with pauses in between."""
    url = urlsplit(address)
    reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=32 << 10)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    received = bytearray()
    try:
        while block := await reader.read(64 << 10):
            received += block
            await asyncio.sleep(pause)
    finally:
        writer.close()
    return bytes(received)


def shrink_send_buffer(request: web.Request) -> None:
    """Shrink the socket's send buffer, so unsent data stays in the process."""
    assert request.transport is not None
    request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 10)


class _ResponseSocket:
    """The part of a socket that `http.client` needs."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, _mode: str) -> BytesIO:
        return BytesIO(self._received)
