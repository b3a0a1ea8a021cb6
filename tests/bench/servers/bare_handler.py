"""A bare aiohttp handler, the minimal cost of a service. It answers `hello`, and reads any body.

python -m tests.bench.servers.bare_handler <port> [certificate]

With a certificate, in one file with its key, it answers https.
"""

import ssl
import sys

import uvloop
from aiohttp import web

BACKLOG = 4096  # connections that wait to be accepted, as the product has


def main(port: int, certificate: str = "") -> None:
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    app = web.Application()
    app.router.add_get("/hello", _hello)
    app.router.add_post("/sink", _sink)
    web.run_app(
        app,
        host="127.0.0.1",
        port=port,
        print=None,
        access_log=None,
        ssl_context=context,
        backlog=BACKLOG,
        loop=uvloop.new_event_loop(),
    )


async def _hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


async def _sink(request: web.Request) -> web.Response:
    async for _ in request.content.iter_any():
        pass
    return web.Response(text="taken")


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
