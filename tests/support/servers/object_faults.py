"""An object storage that cannot read some of its objects, as those in an archive tier."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from aiohttp import ClientSession, web

from common.http.server import serving
from tests.support.servers.object_storage import ObjectServer

REFUSAL = "<Error><Code>InvalidObjectState</Code><Message>The object is archived</Message></Error>"


@dataclass(frozen=True)
class ObjectFaults:
    """`server` is the storage, `unreadable` the names of objects that it does not return."""

    server: ObjectServer
    unreadable: set[str] = field(default_factory=set)


@asynccontextmanager
async def run_object_faults(server: ObjectServer) -> AsyncIterator[ObjectFaults]:
    """Forward requests to `server`, except for reads of unreadable objects."""
    async with ClientSession(auto_decompress=False, skip_auto_headers=["Accept-Encoding"]) as session:

        async def forward(request: web.Request) -> web.StreamResponse:
            target = f"{server.endpoint}{request.raw_path}"
            async with session.request(
                request.method, target, headers=request.headers, data=await request.read()
            ) as answer:
                is_refused = request.method == "GET" and request.path.rpartition("/")[2] in faults.unreadable
                if is_refused and answer.ok:
                    return web.Response(status=403, text=REFUSAL, content_type="application/xml")
                body = None if request.method == "HEAD" else await answer.read()
                return web.Response(status=answer.status, headers=answer.headers, body=body)

        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{key:.*}", forward)
        async with serving(app, "127.0.0.1:0") as address:
            faults = ObjectFaults(replace(server, port=int(address.rpartition(":")[2])))
            yield faults
