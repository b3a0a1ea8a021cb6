"""Two replicas move installers to an object storage while they are killed and the network to it fails."""

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from tests.support.faults.invariants import missing
from tests.support.faults.processes import kill_replica
from tests.support.faults.publishers import at_rest, at_work
from tests.support.processes.cluster import OFTEN, Fleet, fleet
from tests.support.servers.object_storage import ObjectServer
from tests.support.servers.proxy import Mode, proxy
from tests.support.servers.stores import private_stores
from tests.support.wait import until
from upload_service.settings import StorageSettings
from upload_service.storage.s3 import S3Storage

OFTEN_MOVED = {**OFTEN, "upload_service.app:MOVING_PAUSE": 0.05, "upload_service.storage.migration_store:SETTLED": 100}


@pytest.mark.full
async def test_moves_survive_dying_replicas_and_a_failing_network(object_server: ObjectServer) -> None:
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        async with private_stores(Path(folder)) as stores, proxy(f"127.0.0.1:{object_server.port}") as network:
            given = {**object_server.settings(uuid4().hex), "s3_endpoint": f"http://{network.address}"}
            environment = {**{name.upper(): text for name, text in given.items()}, "INSTALLER_STORAGE": "s3"}
            async with fleet(stores, environment, OFTEN_MOVED, upload_service=2) as running:
                api = await running.services.tenant()
                async with at_work(api) as work:
                    for mode in (Mode.RESET, Mode.HALF_OPEN):
                        for replica in running.replicas["upload_service"]:
                            await work.more()
                            await kill_replica(running, replica, api)
                            await running.restart_ended()
                        async with network.failing(mode):
                            await work.more()
                await at_rest(running, api.tenant_id)
                await until(lambda: _all_moved(running, api.tenant_id), timeout=90)
                assert await missing(api, work.published) == []
            storage = StorageSettings(**given).object_storage
            assert storage is not None
            objects = [kept async for kept in S3Storage(storage).list_files() if kept.tenant_id == api.tenant_id]
            assert len(objects) == len(work.published)
            assert [path for path in (stores.installers / api.tenant_id).rglob("*") if path.is_file()] == []


async def _all_moved(running: Fleet, tenant_id: str) -> bool:
    """Whether the folder has nothing of a tenant any more. The leases of the killed end at once."""
    uploads = running.mongo["upload"]["uploads"]
    now = datetime.now(UTC)
    await uploads.update_many({"tenant_id": tenant_id, "moving_until": {"$gt": now}}, {"$set": {"moving_until": now}})
    elsewhere = {"tenant_id": tenant_id, "$or": [{"home": "folder"}, {"left": {"$gt": ""}}]}
    return await uploads.count_documents(elsewhere) == 0
