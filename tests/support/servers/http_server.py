"""A web server of a test, on a free port of loopback."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web


@asynccontextmanager
async def serve(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], certificate: Path | None = None
) -> AsyncIterator[int]:
    """Answer requests, by TLS if there is a certificate. Yields the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if certificate else None
    if context and certificate:
        context.load_cert_chain(certificate)
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
