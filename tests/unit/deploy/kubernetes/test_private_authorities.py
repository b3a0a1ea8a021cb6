"""SSL_CERT_FILE of `components/trusted-certificates` counts for every kind of connection, on real TLS handshakes."""

import asyncio
import os
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from deploy.local.certificates import Certificates

# Each client opens a connection to localhost, and ignores that no store answers there.
PROGRAM = """
import asyncio, aiohttp, aio_pika, sys
from common.mongo import open_database
from common.redis import open_redis

async def mongodb(port):
    async with open_database(f"mongodb://localhost:{port}/?tls=true", "x") as database:
        await database.command("ping")

async def redis(port):
    async with open_redis(f"rediss://localhost:{port}") as client:
        await client.ping()

async def rabbitmq(port):
    await aio_pika.connect(f"amqps://user:password@localhost:{port}/")

async def https(port):
    async with aiohttp.ClientSession() as session:
        await session.get(f"https://localhost:{port}/")

async def main():
    clients = zip((mongodb, redis, rabbitmq, https), sys.argv[1:])
    await asyncio.gather(*(client(port) for client, port in clients), return_exceptions=True)

asyncio.run(main())
"""
CLIENTS = ["mongodb", "redis", "rabbitmq", "https"]


@pytest.mark.full
async def test_every_client_trusts_the_authorities_of_the_file(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, ["localhost"])
    accepted: set[str] = set()

    def accept(client: str, _: StreamReader, writer: StreamWriter) -> None:
        accepted.add(client)
        writer.close()

    async with AsyncExitStack() as stack:
        ports = []
        for client in CLIENTS:
            server = await asyncio.start_server(partial(accept, client), "localhost", 0, ssl=certificates.context)
            await stack.enter_async_context(server)
            ports.append(str(server.sockets[0].getsockname()[1]))
        for file, trusting in (("missing.pem", []), ("ca.crt", CLIENTS)):
            environment = {**os.environ, "SSL_CERT_FILE": str(tmp_path / file)}
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, *ports, env=environment)
            assert await process.wait() == 0
            assert accepted == set(trusting)
