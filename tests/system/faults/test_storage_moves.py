"""Moves of installers to an object storage by two replicas, during kills and network failures."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from common.work import is_waiting
from tests.support.faults.invariants import missing_versions
from tests.support.faults.processes import kill_replica
from tests.support.faults.publishers import run_publishers, wait_until_announced
from tests.support.processes.cluster import SHORT_PAUSES, Cluster, run_cluster
from tests.support.servers.object_storage import ObjectServer
from tests.support.servers.proxy import Mode, run_proxy
from tests.support.servers.stores import private_stores
from tests.support.wait import until
from upload_service.settings import StorageSettings
from upload_service.storage.s3 import S3Storage
from upload_service.store import MOVE

OFTEN_MOVED = {
    **SHORT_PAUSES,
    "upload_service.app:MOVING_PAUSE": 0.05,
    "upload_service.storage.store:SETTLED_SECONDS": 0.1,
}
INTERVAL = 5  # seconds
INTERVALS = 24


@pytest.mark.full
async def test_moves_survive_killed_replicas_and_a_failing_network(object_server: ObjectServer) -> None:
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        async with private_stores(Path(folder)) as stores, run_proxy(f"127.0.0.1:{object_server.port}") as network:
            settings = {**object_server.settings(uuid4().hex), "s3_endpoint": f"http://{network.address}"}
            environment = {**{name.upper(): text for name, text in settings.items()}, "INSTALLER_STORAGE": "s3"}
            async with run_cluster(stores, environment, OFTEN_MOVED, upload_service=2) as cluster:
                api = await cluster.services.tenant()
                async with run_publishers(api) as work:
                    faults = zip(cluster.replicas["upload_service"], (Mode.RESET, Mode.HALF_OPEN), strict=True)
                    for replica, mode in faults:
                        await work.wait_for_progress()
                        await kill_replica(cluster, replica, api)
                        await cluster.restart_exited()
                        async with network.fail(mode):
                            await work.wait_for_progress()
                await wait_until_announced(cluster, api.tenant_id)
                await _until_moved(cluster, api.tenant_id)
                assert await missing_versions(api, work.published) == []
            storage = StorageSettings(**settings).object_storage
            assert storage is not None
            objects = [entry async for entry in S3Storage(storage).list_files() if entry.tenant_id == api.tenant_id]
            assert len(objects) == len(work.published)
            assert [path for path in (stores.installers / api.tenant_id).rglob("*") if path.is_file()] == []


async def _until_moved(cluster: Cluster, tenant_id: str) -> None:
    """Wait until the folder has no files of a tenant. Leases of killed replicas and pauses expire now and then.

    Doing so at each look would take the lease of every move that is under way.
    """
    uploads = cluster.mongo["upload"]["uploads"]
    elsewhere = {"tenant_id": tenant_id, "$or": [{"home": "folder"}, {"left": {"$gt": ""}}]}

    async def is_moved() -> bool:
        return await uploads.count_documents(elsewhere) == 0

    for _ in range(INTERVALS):
        due = {"$set": {"work.move.due": datetime.now(UTC)}}
        await uploads.update_many({"tenant_id": tenant_id, **is_waiting(MOVE)}, due)
        with suppress(TimeoutError):
            return await until(is_moved, timeout=INTERVAL)
    raise TimeoutError
