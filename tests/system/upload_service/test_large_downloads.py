"""Downloads of large installers through the gateway."""

import os

from aiohttp import ClientSession, TraceConfig
from yarl import URL

from tests.support.system.publishing import add_package, publish, version_of
from tests.support.system.services import Services


async def test_a_large_installer_answers_head_like_get(services: Services) -> None:
    tenant = await services.tenant()
    content = os.urandom(3 << 20)
    await add_package(tenant, "App")
    version = await version_of(tenant, await publish(tenant, "App", content=content))
    url = URL(version["INSTALLER_URL"], encoded=True)

    trace, connections = TraceConfig(), []

    async def count(*_: object) -> None:
        connections.append(1)

    trace.on_connection_create_end.append(count)
    async with ClientSession(trace_configs=[trace]) as session:
        async with session.head(url) as head:
            await head.read()
        async with session.get(url) as full:
            body = await full.read()

    assert body == content
    assert (head.status, head.headers["Content-Length"]) == (200, str(len(content)))
    assert head.headers["ETag"] == full.headers["ETag"]
    assert len(connections) == 1  # The gateway did not end the connection after HEAD.
