"""One service asking another that is there and does not answer."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from aiohttp import web

from common.client import open_service
from common.errors import Unavailable
from tests.factories import KEYS, make_caller
from tests.system.standin import instead

SOON = 8  # seconds: less than anything else that ends a question


@pytest.fixture
def deaf() -> Iterator[str]:
    """The address of someone who takes no connection any more."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def blocks() -> AsyncIterator[bytes]:
    yield b"a"


async def test_a_service_that_cannot_be_reached_is_given_up_soon_whatever_it_is_asked(deaf: str) -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"patience": 120.0},
        {"patience": 120.0, "streamed": True},
        {"patience": 120.0, "streamed": True, "data": blocks()},
    ]

    async with open_service(deaf, service="upload_service", keys=KEYS) as service:

        async def ask(kind: dict[str, Any]) -> None:
            async with service.open(make_caller(), "POST", ["x"], **kind):
                pass

        async with asyncio.timeout(SOON):
            answers = await asyncio.gather(*map(ask, kinds), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Unavailable] * len(kinds)


async def test_a_short_answer_is_there_in_time_as_a_whole() -> None:
    release = asyncio.Event()

    async def stall(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 10
        await response.prepare(request)
        await response.write(b"[")
        await release.wait()
        return response

    async with instead(stall) as address, open_service(address, service="auth_service", keys=KEYS) as service:
        async with asyncio.timeout(SOON):
            with pytest.raises(Unavailable):
                await service.ask(make_caller(), "find_tenant", patience=0.3)
        release.set()
