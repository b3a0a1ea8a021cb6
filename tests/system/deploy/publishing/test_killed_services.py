"""`pkgrepo publish` while the processes of the services are killed."""

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from catalog_service.model.enumerations import Architecture, FileType
from deploy.publish.model import Installer
from tests.support.processes.cluster import Cluster
from tests.support.processes.publish_command import TIMEOUT, start_publish, wait_for_result
from tests.support.system.publishing import add_package, download, package_id
from tests.support.system.services import Api

MIB = 1 << 20


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
