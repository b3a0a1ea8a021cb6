"""Stores behind TLS with a certificate of a private authority, which the address of the store names."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from common.events import Event, EventsUnavailable
from common.events.broker import open_events
from common.mongo import open_database
from common.redis import open_redis
from tests.support.servers.certificates import make_certificate
from tests.support.wait import until


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return make_certificate(tmp_path, "127.0.0.1")


async def test_mongodb_is_reached_with_a_private_authority(mongo_url: str, certificate: Path) -> None:
    async with tls_in_front_of(mongo_url, certificate) as address:
        url = f"mongodb://{address}/?directConnection=true&tls=true&tlsCAFile={certificate}"
        async with open_database(url, "admin") as database:
            assert (await database.command("ping"))["ok"] == 1
            await asyncio.to_thread(database.client.close)  # It blocks, and the proxy runs in this loop.


async def test_redis_is_reached_with_a_private_authority(redis_url: str, certificate: Path) -> None:
    async with tls_in_front_of(redis_url, certificate) as address:
        async with open_redis(f"rediss://{address}?ssl_ca_certs={certificate}") as redis:
            assert await redis.ping()
        async with open_redis(f"rediss://{address}") as redis:
            with pytest.raises(RedisConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
                await redis.ping()


async def test_rabbitmq_is_reached_with_a_private_authority(rabbitmq_url: str, certificate: Path) -> None:
    async with tls_in_front_of(rabbitmq_url, certificate) as address:
        path = urlsplit(rabbitmq_url).path
        async with open_events(f"amqps://{address}{path}?cafile={certificate}") as events:
            received, name = asyncio.Event(), f"test.{uuid4().hex[:8]}"

            async def handle(_: Event) -> None:
                received.set()

            async def is_sent() -> bool:
                with suppress(EventsUnavailable):  # until the queue is declared
                    await events.publish(Event(uuid4().hex, name, "tests", "acme", datetime.now(UTC), {}))
                return received.is_set()

            await events.subscribe(name, name, handle)
            await until(is_sent)


@asynccontextmanager
async def tls_in_front_of(url: str, certificate: Path) -> AsyncIterator[str]:
    """Serve TLS on a port and forward it to a store. Yields `user:password@host:port`, with the user of `url`."""
    parts = urlsplit(url)
    user, _, target = (parts.netloc or parts.path).rpartition("@")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = unquote(target)
        opening = asyncio.open_unix_connection(path) if "/" in path else asyncio.open_connection(*target.rsplit(":", 1))
        store_reader, store_writer = await opening
        async with asyncio.TaskGroup() as group:
            group.create_task(copy(reader, store_writer))
            group.create_task(copy(store_reader, writer))

    async with await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{user}@{host}:{port}" if user else f"{host}:{port}"


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while block := await reader.read(1 << 16):
            writer.write(block)
            await writer.drain()
    writer.close()
