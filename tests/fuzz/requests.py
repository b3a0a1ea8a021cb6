"""Requests out of bytes, as aiohttp gives them to handlers, without a connection."""

import asyncio
import atexit
from collections.abc import Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

from aiohttp import HttpVersion11, web
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from common.errors import Problem

Found = TypeVar("Found")
_LOOP = asyncio.new_event_loop()  # one for all: a new one for each input costs more than the input
atexit.register(_LOOP.close)


class _Pieces:
    """A body that comes in pieces of `size` bytes: as much of a stream as readers of bodies use."""

    def __init__(self, body: bytes, size: int) -> None:
        self._pieces = iter([body[start : start + size] for start in range(0, len(body), size)])

    def is_eof(self) -> bool:
        return False  # Whoever reads has no need to know that all of it is here.

    async def readany(self) -> bytes:
        return next(self._pieces, b"")

    async def readchunk(self) -> tuple[bytes, bool]:
        return next(self._pieces, b""), True


def request(
    headers: Sequence[tuple[str, str]] | Mapping[str, str],
    body: bytes = b"",
    *,
    pieces_of: int = 1 << 20,
    peer: str = "192.0.2.1",
) -> web.Request:
    """A request whose body comes in pieces of so many bytes, sent from `peer`."""
    message = RawRequestMessage(
        "POST", "/", HttpVersion11, CIMultiDictProxy(CIMultiDict(headers)), (), False, None, False, False, URL("/")
    )
    protocol: Any = SimpleNamespace(ssl_context=None, peername=(peer, 1), sockname=None)
    payload: Any = _Pieces(body, pieces_of)
    nothing: Any = None  # is answered, and nobody waits for it
    return web.Request(message, payload, protocol, nothing, nothing, _LOOP)


def outcome(reading: Coroutine[Any, Any, Found]) -> Found | int:
    """What a reader came to, or the status of its refusal, which must be the caller's fault."""
    try:
        return _LOOP.run_until_complete(_whole(reading))
    except Problem as problem:
        return blame(problem)


async def _whole(reading: Coroutine[Any, Any, Found]) -> Found:
    try:
        return await reading
    finally:
        await asyncio.sleep(0)  # Generators that were left in the middle end as well, as in a loop that goes on.


def blame(problem: Problem) -> int:
    """The status of a refusal that says whose fault it was: the caller's."""
    assert 400 <= problem.status < 500, problem
    assert problem.detail
    return problem.status
