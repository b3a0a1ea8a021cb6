"""A bare aiohttp handler, the minimal cost of a service. It answers `hello`, and reads any body.

python -m tests.bench.servers.bare_handler <port>
"""

import sys

import uvloop
from aiohttp import web


def main(port: int) -> None:
    app = web.Application()
    app.router.add_get("/hello", _hello)
    app.router.add_post("/sink", _sink)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None, loop=uvloop.new_event_loop())


async def _hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


async def _sink(request: web.Request) -> web.Response:
    async for _ in request.content.iter_any():
        pass
    return web.Response(text="taken")


if __name__ == "__main__":
    main(int(sys.argv[1]))
