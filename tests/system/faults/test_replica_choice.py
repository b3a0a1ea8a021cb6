"""The gateway's choice among two replicas of upload_service, of which one dies between two chunks."""

import hashlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import uuid4

import pytest
from aiohttp import ClientSession, web

from common.auth.internal_tokens import Caller
from common.http.zero_copy.request_bodies import CallerBody
from common.service_client.client import open_service
from gateway.forwarding.proxy import relay
from tests.support.api import ServiceApi
from tests.support.factories import KEYS, make_caller
from tests.support.processes.cluster import Cluster
from tests.support.processes.replica import Replica
from tests.support.servers.ports import free_port
from tests.support.services.upload import UploadApi
from tests.support.system.stub_service import serve_handler

HOST = "upload-replicas"
CHUNK = 3 << 20  # bytes
HEADERS = ("Content-Length", "Content-Range", "Content-Type", "X-File-ID")


@pytest.fixture
async def replicas(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Replica]]:
    """Two replicas whose addresses `HOST` has; the port is the same."""
    port, lookup = free_port(), socket.getaddrinfo
    hosts = ("127.0.0.2", "127.0.0.3")

    def getaddrinfo(host: str, *arguments: int, **options: int) -> object:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in hosts]
        return found if host == HOST else lookup(host, *arguments, **options)

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    async with AsyncExitStack() as stack:
        replicas = []
        for host in hosts:
            log = cluster.stores.folder / f"upload_service-{host}.log"
            replica = Replica("upload_service", f"{host}:{port}", log, cluster.environment)
            stack.push_async_callback(replica.kill)
            await replica.start()
            await replica.ready()
            replicas.append(replica)
        yield replicas


@asynccontextmanager
async def gateway_of(cluster: Cluster, caller: Caller, port: str) -> AsyncIterator[UploadApi]:
    """A client of a gateway that forwards chunks for a caller."""

    async def forward(request: web.Request) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in HEADERS}
        async with service.open(
            caller,
            "POST",
            ["upload_package_version"],
            headers=headers,
            data=CallerBody(request),
            timeout=120,
            replica_key=headers["X-File-ID"],
        ) as response:
            return await relay(request, response)

    async with (
        open_service(f"http://{HOST}:{port}", service="upload_service", keys=KEYS) as service,
        serve_handler(forward) as address,
        ClientSession() as session,
    ):
        yield UploadApi(ServiceApi(session, address, "upload_service"), cluster.stores.installers)


async def test_an_upload_continues_at_the_other_replica(cluster: Cluster, replicas: list[Replica]) -> None:
    caller, file_id, content = make_caller(), uuid4().hex, os.urandom(3 * CHUNK)
    async with gateway_of(cluster, caller, replicas[0].address.rpartition(":")[2]) as gateway:
        for number in range(3):
            start = number * CHUNK
            answer = await gateway.chunk(caller, file_id, content[start : start + CHUNK], start, len(content))
            assert answer.status == 200, answer.body
            if number < 2:  # First one replica dies, then the other: one of them had the transfer.
                await replicas[number].kill()
                if not replicas[1 - number].is_running:
                    await replicas[1 - number].start()
                    await replicas[1 - number].ready()
    assert answer.body["sha256"] == hashlib.sha256(content).hexdigest()
    stored = cluster.stores.installers / caller.tenant_id / answer.body["server_filename"]
    assert stored.read_bytes() == content
