"""`pkgrepo publish` with lost connections, an unreachable server or killed services, and after Ctrl-C."""

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from catalog_service.model.enumerations import Architecture, FileType
from deploy.publish.model import Installer
from tests.support.processes.cluster import Cluster
from tests.support.processes.publish_command import TIMEOUT, run_publish, start_publish, wait_for_result
from tests.support.system.publishing import add_package, download, package_id
from tests.support.system.services import Api

MIB = 1 << 20


class BreakingProxy:
    """A TCP proxy that closes each connection after `reach` uploaded bytes, `breaks` times.

    Afterwards it works normally. If it `holds`, it stops forwarding instead of closing, until the client disconnects.
    """

    def __init__(self, reach: int, breaks: int = 0, *, holds: bool = False) -> None:
        self._reached = asyncio.Event()
        self.breaks = breaks
        self._reach = reach
        self._holds = holds
        self._tasks: set[asyncio.Task[None]] = set()

    async def reach(self) -> None:
        """Wait until a connection reached the blocked byte."""
        async with asyncio.timeout(TIMEOUT):
            await self._reached.wait()

    @asynccontextmanager
    async def to(self, api: Api) -> AsyncIterator[Api]:
        """The API at the address of the proxy."""
        target = urlsplit(api.base_url)

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task
            self._tasks.add(task)
            far_reader, far_writer = await asyncio.open_connection(target.hostname, target.port)
            down = asyncio.create_task(self._down(far_reader, writer))
            try:
                await self._up(reader, far_writer)
            except (ConnectionError, asyncio.CancelledError):
                pass
            finally:
                writer.transport.abort()
                far_writer.transport.abort()
                await down
                self._tasks.discard(task)

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield replace(api, base_url=f"http://127.0.0.1:{port}{target.path}")
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Raises ConnectionError at the break."""
        passed = 0
        while block := await reader.read(1 << 16):
            passed += len(block)
            if passed > self._reach and self._holds:
                self._reached.set()
                continue
            if passed > self._reach and self.breaks:
                self.breaks -= 1
                raise ConnectionResetError
            writer.write(block)
            await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while block := await reader.read(1 << 16):
                writer.write(block)
                await writer.drain()


@pytest.fixture
async def package(tenant: Api) -> str:
    name = package_id()
    await add_package(tenant, name)
    return name


def make_file(folder: Path, size: int) -> Path:
    path = folder / "setup.exe"
    path.write_bytes(os.urandom(size))
    return path


async def content_of(api: Api, package: str) -> bytes:
    """The digest of the installer of a package's only version."""
    [version] = (await api.call("GET", "get_package_versions", package)).body
    return await download(api, version["INSTALLER_URL"])


async def test_a_connection_lost_within_a_chunk_loses_no_byte(tenant: Api, package: str, tmp_path: Path) -> None:
    file, line = make_file(tmp_path, 5 * MIB), BreakingProxy(MIB + 500_000, breaks=2)
    async with line.to(tenant) as near:
        result = await run_publish(near, file, "--package", package, "--version", "1", "--chunk-size", "1")
    assert result.status == 0, result.log
    assert line.breaks == 0
    assert result.log.count("Trying again in") >= 2
    assert await content_of(tenant, package) == file.read_bytes()


@pytest.mark.full
async def test_chunks_shrink_after_failed_chunks(tenant: Api, package: str, tmp_path: Path) -> None:
    file = make_file(tmp_path, 3 * MIB)
    async with BreakingProxy(MIB + 200_000, breaks=100).to(tenant) as near:
        result = await run_publish(near, file, "--package", package, "--version", "1", "--chunk-size", "2")
    assert result.status == 0, result.log
    assert await content_of(tenant, package) == file.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
async def test_the_same_command_resumes_after_a_stop(
    tenant: Api, package: str, tmp_path: Path, number: signal.Signals
) -> None:
    file, line = make_file(tmp_path, 6 * MIB), BreakingProxy(3 * MIB + 500_000, holds=True)
    command = (file, "--package", package, "--version", "1", "--chunk-size", "1", "--json")
    async with line.to(tenant) as near, start_publish(near, *command) as process:
        await line.reach()
        process.send_signal(number)
        result = await wait_for_result(process)
    assert (result.status, result.output) == (130, "")
    assert result.log.endswith("Stopped. Run the command again to continue.")
    again = await run_publish(tenant, *command)
    assert (again.status, again.documents[0]["resumed_from"]) == (0, 3 * MIB), again.log
    assert await content_of(tenant, package) == file.read_bytes()


async def received(tenant: Api, file_id: str) -> int:
    """The received bytes of a transfer. 0 if it is unknown or the server does not answer."""
    answer = await tenant.call("GET", "upload_package_version", headers={"X-File-ID": file_id})
    return int(answer.body["received"]) if answer.status == 200 else 0


@pytest.mark.full
async def test_killing_all_services_during_an_upload_loses_no_byte(cluster: Cluster, tmp_path: Path) -> None:
    tenant, name, file = await cluster.services.tenant(), package_id(), tmp_path / "setup.exe"
    await add_package(tenant, name)
    file.write_bytes(os.urandom(24 * MIB))
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    file_id = next(Installer(file, name, "1", Architecture.X64, FileType.EXE).file_ids(sha256))
    cluster.proxies["gateway"].latency = 0.01
    async with (
        asyncio.timeout(2 * TIMEOUT),
        start_publish(tenant, file, "--package", name, "--version", "1", "--chunk-size", "1") as process,
    ):
        while await received(tenant, file_id) < 8 * MIB:  # Each request gives the server time.
            assert process.returncode is None
        every = [replica for replicas in cluster.replicas.values() for replica in replicas]
        await asyncio.gather(*(replica.kill() for replica in every))
        await cluster.restart_exited()
        cluster.proxies["gateway"].latency = 0.0
        result = await wait_for_result(process)
    assert result.status == 0, result.log
    assert "Trying again in" in result.log
    [version] = (await tenant.call("GET", "get_package_versions", name)).body
    assert await download(tenant, version["INSTALLER_URL"]) == file.read_bytes()
