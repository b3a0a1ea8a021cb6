"""Deletes a package with many versions while a service is killed and another version is added."""

import asyncio
import os
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass

from tests.support.faults.invariants import State, violations
from tests.support.faults.publishers import wait_until_announced
from tests.support.faults.results import Outcome
from tests.support.faults.retrying_uploader import RetryingClient
from tests.support.processes.cluster import Cluster
from tests.support.processes.failpoint_control import single_replica
from tests.support.system.publishing import INSTALLER, package_id
from tests.support.system.services import Api
from tests.support.wait import until

CONCURRENCY = 10  # versions being published
SWEEP_AGE = 61  # seconds after which sweeper and collector process incomplete work
PAUSES = {
    "catalog_service": {"catalog_service.app:SWEEP_PAUSE": 0.2},
    "upload_service": {"upload_service.app:COLLECTION_PAUSE": 0.2},
}


@dataclass(frozen=True)
class DeletedPackage:
    """A package to delete, and a file for one more version."""

    api: Api
    package_id: str
    server_filename: str

    @classmethod
    async def create(cls, cluster: Cluster, versions: int) -> "DeletedPackage":
        client = RetryingClient(await cluster.services.tenant())  # The replica may still be restarting.
        package = cls(client.api, package_id(), await client.upload(os.urandom(100)))
        form = {"package_id": package.package_id, "package_name": "Old", "package_publisher": "Old"}
        await client.call("POST", "add_package", data=form)
        limit = asyncio.Semaphore(CONCURRENCY)

        async def add(number: int) -> None:
            async with limit:
                await client.publish(package.package_id, f"1.{number}", os.urandom(100))

        await asyncio.gather(*map(add, range(versions)))
        await wait_until_announced(cluster, package.api.tenant_id)
        return package

    async def delete(self) -> list[str]:
        """Delete it with retries while a version is added. Returns the wrong answers, each as a sentence."""
        client = RetryingClient(self.api)
        late = {**INSTALLER, "package_version": "2.0", "server_filename": self.server_filename}
        deleted, _ = await asyncio.gather(
            client.call("DELETE", "delete_package", self.package_id),
            client.call("POST", "add_package_version", self.package_id, data=late),
        )
        return [] if deleted.status in {200, 404} else [f"delete_package is answered with {deleted.status}"]

    async def add_again(self) -> list[str]:
        """Add a package with the same id. Returns visible remains of the old one, each as a sentence."""
        client = RetryingClient(self.api)
        form = {"package_id": self.package_id, "package_name": "New", "package_publisher": "New"}
        added = await client.call("POST", "add_package", data=form)
        versions = await client.call("GET", "get_package_versions", self.package_id)
        await client.publish(self.package_id, "1.1", b"new")
        wrong = [] if added.status == 200 else [f"add_package is answered with {added.status} {added.body}"]
        return wrong + ([] if versions.body == [] else [f"the new package shows {versions.body}"])


async def kill_during_deletion(cluster: Cluster, service: str, *, times: int = 1, versions: int = 50) -> Outcome:
    """Kill the service at each step of a deletion, `times` times per kind. Incomplete work is done in a minute."""
    outcome = Outcome(f"{service} killed while a package with {versions} versions is deleted")
    loop = asyncio.get_running_loop()
    async with single_replica(cluster, service, patches=PAUSES[service]) as steps:
        packages = [await DeletedPackage.create(cluster, versions)]
        steps.start_counting()
        outcome.violations += await packages[0].delete()
        recorded = steps.stop_counting()
        for step in _sample_steps(recorded, times, versions):
            package = await DeletedPackage.create(cluster, versions)
            packages.append(package)
            steps.die_after(step)
            wrong = await package.delete()
            # A faster deletion leaves fewer steps for the late version.
            outcome.times += steps.died
            steps.disarm()
            outcome.violations += [f"{step}: {problem}" for problem in wrong + await package.add_again()]
        began = loop.time()
        outcome.violations += await _remaining_problems(cluster, [package.api.tenant_id for package in packages])
        outcome.recoveries.append(loop.time() - began)
    return outcome


def _sample_steps(steps: list[str], times: int, versions: int) -> list[str]:
    """Choose `times` repetitions of each kind of step, including the last.

    Steps of the late version are left out, because they do not always occur.
    """
    kinds: dict[str, list[str]] = defaultdict(list)
    for step in steps:
        kind, _, number = step.rpartition(" #")
        if int(number) <= versions:
            kinds[kind].append(step)
    return [same[-1 - index * (len(same) - 1) // times] for same in kinds.values() for index in range(times)]


async def _remaining_problems(cluster: Cluster, tenant_ids: list[str]) -> list[str]:
    """The problems that sweeper and collector do not fix within a minute, each as a sentence."""
    problems: list[str] = []

    async def all_settled() -> bool:
        problems.clear()
        for tenant_id in tenant_ids:
            state = await State.read(cluster.mongo, tenant_id)
            problems.extend(sentence for sentence in state.unsettled() if not sentence.endswith("is complete"))
            problems.extend(await violations(cluster, [tenant_id]))
        return not problems

    for tenant_id in tenant_ids:
        await cluster.age_tenant(tenant_id, SWEEP_AGE)
    with suppress(TimeoutError):
        await until(all_settled, timeout=60)
    return problems
