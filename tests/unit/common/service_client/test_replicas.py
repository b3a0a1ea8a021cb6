"""Bodies with one key go to one replica, and to the next one if that cannot be reached."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.http import StreamWriter

from common.errors import Unavailable
from common.http.server import serving
from common.service_client.client import ServiceClient, open_service
from common.tenants import Tenant
from tests.support.factories import KEYS, make_caller
from tests.support.servers.ports import free_port

HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
KEYS_SENT = [f"file-{number}" for number in range(24)]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WholeBody:
    """A body at hand."""

    async def send(self, writer: StreamWriter, *, stall_timeout: float) -> None:
        await writer.write(b"a body")
        await writer.write_eof()


@dataclass
class Name:
    """The addresses of the service's name, which a test changes, and the keys that each replica received."""

    port: int
    addresses: list[str]
    received: dict[str, list[str]] = field(default_factory=dict)
    is_known: bool = False  # also without an address

    def look_up(self, host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        assert (host, port) == ("upload-replicas", self.port)
        if not self.addresses and not self.is_known:
            raise socket.gaierror("unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self.addresses]

    def replica_of(self, key: str) -> str:
        (replica,) = [address for address, keys in self.received.items() if key in keys]
        return replica


@pytest.fixture
async def name(monkeypatch: pytest.MonkeyPatch) -> Name:
    name = Name(free_port(), [*HOSTS])
    lookup = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *arguments: int, **options: int) -> object:
        return name.look_up(host, port) if host == "upload-replicas" else lookup(host, port, *arguments, **options)

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    return name


@pytest.fixture
async def client(name: Name) -> AsyncIterator[ServiceClient]:
    address = f"http://upload-replicas:{name.port}"
    async with open_service(address, service="upload_service", keys=KEYS) as client:
        yield client


@asynccontextmanager
async def running(name: Name, *hosts: str, answer: Answer | None = None) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for host in hosts:
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", answer or _recording(name, host))
            await stack.enter_async_context(serving(app, f"{host}:{name.port}"))
        yield


def _recording(name: Name, host: str) -> Answer:
    async def record(request: web.Request) -> web.Response:
        assert await request.read() == b"a body"
        assert request.host == f"upload-replicas:{name.port}"
        name.received.setdefault(host, []).append(request.headers["X-File-ID"])
        return web.Response()

    return record


async def send(client: ServiceClient, key: str, tenant_id: str = "acme", timeout: float = 60) -> None:
    async with client.open(
        make_caller(Tenant(tenant_id)),
        "POST",
        ["x"],
        headers={"X-File-ID": key},
        data=WholeBody(),
        replica_key=key,
        timeout=timeout,
    ):
        pass


async def send_all(client: ServiceClient) -> None:
    for key in KEYS_SENT:
        await send(client, key)


async def test_bodies_with_one_key_go_to_one_replica(name: Name, client: ServiceClient) -> None:
    async with running(name, *HOSTS):
        for _ in range(3):
            await send_all(client)
    assert {name.received[name.replica_of(key)].count(key) for key in KEYS_SENT} == {3}
    assert set(name.received) == set(HOSTS)


async def test_the_same_key_of_two_tenants_may_use_two_replicas(name: Name, client: ServiceClient) -> None:
    async with running(name, *HOSTS):
        for number in range(12):
            await send(client, "same", f"tenant-{number}")
    assert len(name.received) > 1


async def test_a_new_replica_takes_only_keys_of_its_own(
    name: Name, client: ServiceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.service_client.client.LOOKUP_INTERVAL", 0)
    name.addresses = [*HOSTS[:2]]
    async with running(name, *HOSTS):
        await send_all(client)
        before = {key: name.replica_of(key) for key in KEYS_SENT}
        name.received.clear()
        name.addresses = [*HOSTS]
        await send_all(client)
    moved = {key: replica for key in KEYS_SENT if (replica := name.replica_of(key)) != before[key]}
    assert set(moved.values()) == {HOSTS[2]}


async def test_a_replica_that_refuses_is_replaced_by_the_next(name: Name, client: ServiceClient) -> None:
    async with running(name, *HOSTS[:2]):
        await send_all(client)
    assert sorted(key for keys in name.received.values() for key in keys) == sorted(KEYS_SENT)
    assert set(name.received) == set(HOSTS[:2])


async def test_a_body_is_not_sent_to_a_second_replica(name: Name, client: ServiceClient) -> None:
    sent: list[str] = []

    async def disconnect(request: web.Request) -> web.Response:
        sent.append((await request.read()).decode())
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with running(name, *HOSTS, answer=disconnect):
        with pytest.raises(Unavailable):
            await send(client, "one")
    assert sent == ["a body"]


@pytest.mark.parametrize("is_known", [False, True])
async def test_known_replicas_are_used_while_their_name_has_no_address(
    name: Name, client: ServiceClient, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    monkeypatch.setattr("common.service_client.client.LOOKUP_INTERVAL", 0)
    async with running(name, *HOSTS):
        await send_all(client)
        name.addresses.clear()
        name.is_known = is_known
        await send_all(client)
    assert {name.received[name.replica_of(key)].count(key) for key in KEYS_SENT} == {2}


async def test_a_name_without_addresses_is_unavailable(name: Name, client: ServiceClient) -> None:
    name.addresses.clear()
    with pytest.raises(Unavailable):
        await send(client, "one")


async def test_a_replica_that_does_not_answer_comes_last_for_a_while(
    name: Name, client: ServiceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.service_client.client.BLOCK_TIMEOUT", 0.2)
    connected: list[asyncio.StreamWriter] = []

    async def wait(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer)

    async with await asyncio.start_server(wait, HOSTS[0], name.port), running(name, HOSTS[1]):
        name.addresses = [*HOSTS[:2]]
        (refused,) = [key for key in KEYS_SENT if not await is_taken(client, key)]
        await send(client, refused)
        for writer in connected:
            writer.transport.abort()
    assert len(connected) == 1
    assert sorted(name.received[HOSTS[1]]) == sorted(KEYS_SENT)


async def is_taken(client: ServiceClient, key: str) -> bool:
    try:
        await send(client, key, timeout=0.2)
    except Unavailable:
        return False
    return True
