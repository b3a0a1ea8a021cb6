"""A bare aiohttp handler: what a service here costs at least. Answers `hello`, and the bytes of a file.

python -m tests.bench.bare <port> <file>
"""

import sys
from pathlib import Path

import uvloop
from aiohttp import web

SLICE = 256 << 10  # bytes


def main(port: int, file: Path) -> None:
    app = web.Application()
    app.router.add_get("/hello", _hello)
    app.router.add_get("/catalog", lambda request: _catalog(request, file))
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None, loop=uvloop.new_event_loop())


async def _hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


async def _catalog(request: web.Request, file: Path) -> web.StreamResponse:
    whole = memoryview(file.read_bytes())
    response = web.StreamResponse(headers={"Content-Length": str(len(whole))})
    await response.prepare(request)
    for start in range(0, len(whole), SLICE):
        await response.write(whole[start : start + SLICE])
    return response


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
