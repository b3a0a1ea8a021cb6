"""A service that gives every request the same answer and records the requests."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext

from aiohttp import web

from common.http.server import serving

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Received:
    """A received request with its body."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class StubService:
    """The service's address, and the requests it received."""

    address: str = ""
    received: list[Received] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.received.append(Received(request.method, request.path, request.headers.copy(), body))
        return web.json_response([])


@asynccontextmanager
async def run_stub_service() -> AsyncIterator[StubService]:
    """Run a stub of a service."""
    service = StubService()
    async with serve_handler(service.answer) as service.address:
        yield service


@asynccontextmanager
async def serve_handler(answer: Handler, tls: SSLContext | None = None) -> AsyncIterator[str]:
    """Run a service with one handler for all requests. Yields its address."""
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", answer)
    async with serving(app, "127.0.0.1:0", tls=tls) as address:
        yield address
