"""Private stores for tests of faults: MongoDB, Redis, RabbitMQ and a folder of installers.

The databases have fixed names, so each cluster needs its own stores.
"""

import os
import signal
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from deploy.local import servers as local
from tests.support.servers import rabbitmq
from tests.support.servers.proxy import Proxy, run_proxy

# The stores that a service needs to be ready.
REQUIRED_STORES = {
    "auth_service": {"mongodb", "redis"},
    "catalog_service": {"mongodb"},
    "client_registry": {"mongodb"},
    "gateway": {"redis"},
    "upload_service": {"mongodb"},
}


class Server:
    """A store that can be killed, and started again with the same data and address."""

    def __init__(self, run: Callable[[Path], AbstractAsyncContextManager[str]], folder: Path) -> None:
        self._run = run
        self._folder = folder
        self._stack = AsyncExitStack()
        self.url = ""

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        await self._stack.aclose()  # of the killed process
        self.url = await self._stack.enter_async_context(self._run(self._folder))

    @property
    def pid(self) -> int:
        return int((self._folder / "server.pid").read_text())

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal: SIGKILL, SIGSTOP, SIGCONT."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    async def stop(self) -> None:
        await self._stack.aclose()


@dataclass(frozen=True)
class Stores:
    """The stores of an installation.

    `mongod` and `redis` can be killed and started, `broker` can be controlled. `links` are the requested proxies by
    store. `mongo_url`, `redis_url` and `rabbitmq_url` use the proxies; `mongod.url` and `redis.url` do not.
    """

    folder: Path
    mongod: Server
    redis: Server
    broker: rabbitmq.Node
    mongo_url: str
    redis_url: str
    rabbitmq_url: str
    links: dict[str, Proxy]

    @property
    def installers(self) -> Path:
        return self.folder / "installers"


@asynccontextmanager
async def private_stores(folder: Path, links: Collection[str] = ()) -> AsyncIterator[Stores]:
    """Start the stores on an empty folder with a short path. `links` names the stores that get a proxy.

    The names are `mongodb`, `redis` and `rabbitmq`.
    """
    async with AsyncExitStack() as stack:
        mongod, redis = Server(local.mongod, folder / "mongodb"), Server(local.redis, folder / "redis")
        for server in (mongod, redis):
            stack.push_async_callback(server.stop)
            await server.start()
        broker = await stack.enter_async_context(rabbitmq.run_node())
        (folder / "installers").mkdir()
        opened: dict[str, Proxy] = {}
        urls = {"mongodb": mongod.url, "redis": redis.url, "rabbitmq": broker.url}
        for name in links:
            opened[name] = await stack.enter_async_context(run_proxy(target_of(urls[name])))
            urls[name] = url_through(name, opened[name])
        yield Stores(folder, mongod, redis, broker, urls["mongodb"], urls["redis"], urls["rabbitmq"], opened)


def target_of(url: str) -> str:
    """The address of a store, from its URL."""
    address = url.partition("://")[2].partition("/?")[0]
    if url.startswith("amqp"):
        return address.rpartition("@")[2].rstrip("/")
    return f"unix:{unquote(address)}"


def url_through(name: str, link: Proxy) -> str:
    return {
        "mongodb": f"mongodb://{link.address}/?directConnection=true",
        "redis": f"redis://{link.address}/0",
        "rabbitmq": f"amqp://guest:guest@{link.address}/",
    }[name]
