"""Deletes a package with many versions while a service is killed and another version is added."""

import asyncio
import os
from dataclasses import dataclass
from functools import partial

from tests.support.faults.crash_steps import kill_at_steps, sample_steps
from tests.support.faults.publishers import wait_until_announced
from tests.support.faults.results import Outcome
from tests.support.faults.retrying_uploader import RetryingClient
from tests.support.processes.cluster import Cluster
from tests.support.processes.failpoint_control import StepControl
from tests.support.system.publishing import INSTALLER, package_id
from tests.support.system.services import Api

CONCURRENCY = 10  # versions being published
SWEEP_AGE = 61  # seconds after which sweeper and collector process incomplete work
PAUSES = {
    "catalog_service": {"catalog_service.app:SWEEP_PAUSE": 0.2},
    "upload_service": {"upload_service.app:COLLECTION_PAUSE": 0.2},
}


async def kill_during_deletion(cluster: Cluster, service: str, *, times: int = 1, versions: int = 50) -> Outcome:
    """Kill the service at each step of a deletion, `times` times per kind. Incomplete work is done in a minute."""
    outcome = Outcome(f"{service} killed while a package with {versions} versions is deleted")
    create = partial(DeletedPackage.create, cluster, versions)
    choose = partial(_choose_steps, times=times, versions=versions)
    return await kill_at_steps(
        cluster, service, outcome, create, age=SWEEP_AGE, choose=choose, recordings=1, patches=PAUSES[service]
    )


@dataclass(frozen=True)
class DeletedPackage:
    """A package to delete, and a file for one more version."""

    api: Api
    package_id: str
    server_filename: str

    @classmethod
    async def create(cls, cluster: Cluster, versions: int, _: StepControl) -> "DeletedPackage":
        client = RetryingClient(await cluster.services.tenant())
        package = cls(client.api, package_id(), await client.upload(os.urandom(100)))
        await package.add("Old")
        limit = asyncio.Semaphore(CONCURRENCY)

        async def publish(number: int) -> None:
            async with limit:
                await client.publish(package.package_id, f"1.{number}", os.urandom(100))

        await asyncio.gather(*map(publish, range(versions)))
        await wait_until_announced(cluster, package.api.tenant_id)
        return package

    async def add(self, name: str) -> list[str]:
        form = {"package_id": self.package_id, "package_name": name, "package_publisher": name}
        added = await RetryingClient(self.api).call("POST", "add_package", data=form)
        return [] if added.status == 200 else [f"add_package is answered with {added.status} {added.body}"]

    async def run(self) -> list[str]:
        """Delete it with retries while a version is added."""
        client = RetryingClient(self.api)
        late = {**INSTALLER, "package_version": "2.0", "server_filename": self.server_filename}
        deleted, _ = await asyncio.gather(
            client.call("DELETE", "delete_package", self.package_id),
            client.call("POST", "add_package_version", self.package_id, data=late),
        )
        return [] if deleted.status in {200, 404} else [f"delete_package is answered with {deleted.status}"]

    async def check(self) -> list[str]:
        """Add a package with the same id. It must show nothing of the old one."""
        client, problems = RetryingClient(self.api), await self.add("New")
        versions = await client.call("GET", "get_package_versions", self.package_id)
        await client.publish(self.package_id, "1.1", b"new")
        return problems + ([] if versions.body == [] else [f"the new package shows {versions.body}"])


def _choose_steps(steps: list[str], *, times: int, versions: int) -> list[str]:
    """Steps of the late version are left out, because they do not always occur."""
    return sample_steps((step for step in steps if int(step.rpartition("#")[2]) <= versions), times)
