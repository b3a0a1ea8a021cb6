"""Requests made of bytes, as aiohttp gives them to handlers, without a connection."""

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
_LOOP = asyncio.new_event_loop()  # one for all inputs: creating one per input is too slow
atexit.register(_LOOP.close)


class _Pieces:
    """A body in pieces of `size` bytes, with the part of the stream interface that parsers use."""

    def __init__(self, body: bytes, size: int) -> None:
        self._pieces = iter([body[start : start + size] for start in range(0, len(body), size)])

    def is_eof(self) -> bool:
        return False  # Parsers must not need to know that the whole body is here.

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
    """A request from `peer` whose body comes in pieces of this size."""
    message = RawRequestMessage(
        "POST", "/", HttpVersion11, CIMultiDictProxy(CIMultiDict(headers)), (), False, None, False, False, URL("/")
    )
    protocol: Any = SimpleNamespace(ssl_context=None, peername=(peer, 1), sockname=None)
    payload: Any = _Pieces(body, pieces_of)
    nothing: Any = None  # response without a waiting client
    return web.Request(message, payload, protocol, nothing, nothing, _LOOP)


def outcome(reading: Coroutine[Any, Any, Found]) -> Found | int:
    """The result of a parser, or the status of its refusal, which must be a client error."""
    try:
        return _LOOP.run_until_complete(_whole(reading))
    except Problem as problem:
        return blame(problem)


async def _whole(reading: Coroutine[Any, Any, Found]) -> Found:
    try:
        return await reading
    finally:
        await asyncio.sleep(0)  # Unfinished generators end as well, as in a running loop.


def blame(problem: Problem) -> int:
    """The status of a refusal, which must be a client error."""
    assert 400 <= problem.status < 500, problem
    assert problem.detail
    return problem.status
