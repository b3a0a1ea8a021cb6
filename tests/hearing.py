"""What tests are answered, heard where it arrives: on every session and connection that a test module opens.

The services of most tests run in the same process and ask each other with the same library: who opened it tells.
"""

import asyncio
import re
import sys
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Protocol, SupportsIndex

import pytest
from aiohttp import ClientError, ClientSession, TraceConfig

# The start of an answer: bodies say such things too, but not with a header's line after it. 100 is no answer yet.
_START = re.compile(rb"HTTP/[0-9.]+ ([2-5][0-9][0-9]) [ -~]*\r\n[A-Za-z-]+:")
_LONGER_THAN_A_START = 200  # bytes
# They wait for something to be up, or pass on what others sent.
_NO_CALLERS = {"tests.ports", "tests.system.proxy", "tests.system.replica"}


class Ear(Protocol):
    def answered(self, request: str, status: int, seconds: float) -> None:
        """An answer began so many seconds after its request, or after the last bytes of it."""

    def dropped(self) -> None:
        """The other side closed the connection and answered nothing."""


def listen(ear: Ear, patch: pytest.MonkeyPatch) -> None:
    """From now on let `ear` know of every answer, until the patch is undone."""
    begin, connect = ClientSession.__init__, asyncio.open_connection

    def begin_heard(session: ClientSession, *given: Any, **options: Any) -> None:
        if _opened_by_a_test():
            options["trace_configs"] = [*(options.get("trace_configs") or ()), _trace(ear)]
        begin(session, *given, **options)

    def connect_heard(*given: Any, **options: Any) -> Any:
        return _connect(ear, *given, **options) if _opened_by_a_test() else connect(*given, **options)

    patch.setattr(ClientSession, "__init__", begin_heard)
    patch.setattr(asyncio, "open_connection", connect_heard)


def _opened_by_a_test() -> bool:
    name = sys._getframe(2).f_globals["__name__"]
    return name.startswith(("tests.", "test_")) and name not in _NO_CALLERS


def _trace(ear: Ear) -> TraceConfig:
    async def started(_: ClientSession, context: SimpleNamespace, _request: object) -> None:
        context.since = time.monotonic()

    async def ended(_: ClientSession, context: SimpleNamespace, request: Any) -> None:
        ear.answered(f"{request.method} {request.url}", request.response.status, time.monotonic() - context.since)

    async def failed(_: ClientSession, _context: SimpleNamespace, request: Any) -> None:
        if isinstance(request.exception, ClientError | ConnectionError):
            ear.dropped()

    trace = TraceConfig()
    trace.on_request_start.append(started)
    trace.on_request_end.append(ended)
    trace.on_request_exception.append(failed)
    return trace


async def _connect(
    ear: Ear, host: str, port: int, *, limit: int = 1 << 16, **options: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = _Reader(ear, limit, loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(lambda: protocol, host, port, **options)
    return reader, _Writer(transport, protocol, reader, loop)


class _Reader(asyncio.StreamReader):
    """Hears the starts of answers among what comes."""

    def __init__(self, ear: Ear, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit, loop)
        self.ear = ear
        self.sent = b""
        self.since = time.monotonic()
        self._tail = b""
        self._has_answered = False

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        seen = self._tail + bytes(data)
        heard = 0
        for start in _START.finditer(seen):
            heard = start.end()
            self._has_answered = True
            self.ear.answered(f"{self.sent!r}", int(start[1]), time.monotonic() - self.since)
        self._tail = seen[heard:][-_LONGER_THAN_A_START:]
        super().feed_data(data)

    def feed_eof(self) -> None:
        transport: asyncio.Transport = self._transport  # type: ignore[attr-defined]
        if not transport.is_closing():  # else it was the test that closed it
            self._end()
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        self._end()
        super().set_exception(exc)

    def _end(self) -> None:
        if not self._has_answered:
            self._has_answered = True
            self.ear.dropped()


class _Writer(asyncio.StreamWriter):
    """Remembers what was last sent, and when."""

    def __init__(self, transport: asyncio.Transport, protocol: Any, reader: _Reader, loop: Any) -> None:
        super().__init__(transport, protocol, reader, loop)
        self._heard = reader

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._heard.sent, self._heard.since = bytes(data[:200]), time.monotonic()
        super().write(data)
