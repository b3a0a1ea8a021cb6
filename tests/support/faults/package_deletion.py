"""A package with many versions is deleted by services that die on the way, while a version is being added to it."""

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
from tests.support.wait import until
from tests.support.whole.publishing import INSTALLER, package_id
from tests.support.whole.services import Api

CONCURRENCY = 10  # versions being published
SWEEP_AGE = 61  # seconds, after which sweepers and collectors take up what was left halfway
PAUSES = {
    "catalog_service": {"catalog_service.app:SWEEP_PAUSE": 0.2},
    "upload_service": {"upload_service.app:COLLECTION_PAUSE": 0.2},
}


@dataclass(frozen=True)
class DeletedPackage:
    """A package that is to go, and a file for one more version of it."""

    api: Api
    package_id: str
    server_filename: str

    @classmethod
    async def create(cls, cluster: Cluster, versions: int) -> "DeletedPackage":
        client = RetryingClient(
            await cluster.services.tenant()
        )  # It insists: the replica may still be starting after its death.
        package = cls(client.api, package_id(), await client.upload(os.urandom(100)))
        form = {"package_id": package.package_id, "package_name": "Old", "package_publisher": "Old"}
        await client.call("POST", "add_package", data=form)
        turns = asyncio.Semaphore(CONCURRENCY)

        async def add(number: int) -> None:
            async with turns:
                await client.publish(package.package_id, f"1.{number}", os.urandom(100))

        await asyncio.gather(*map(add, range(versions)))
        await wait_until_announced(cluster, package.api.tenant_id)
        return package

    async def delete(self) -> list[str]:
        """Delete it, insisting, while a version is added; what is wrong with the answers."""
        client = RetryingClient(self.api)
        late = {**INSTALLER, "package_version": "2.0", "server_filename": self.server_filename}
        deleted, _ = await asyncio.gather(
            client.call("DELETE", "delete_package", self.package_id),
            client.call("POST", "add_package_version", self.package_id, data=late),
        )
        return [] if deleted.status in {200, 404} else [f"delete_package is answered with {deleted.status}"]

    async def add_again(self) -> list[str]:
        """Add another package of this id; what of the old one is seen."""
        client = RetryingClient(self.api)
        form = {"package_id": self.package_id, "package_name": "New", "package_publisher": "New"}
        added = await client.call("POST", "add_package", data=form)
        shown = await client.call("GET", "get_package_versions", self.package_id)
        await client.publish(self.package_id, "1.1", b"new")
        wrong = [] if added.status == 200 else [f"add_package is answered with {added.status} {added.body}"]
        return wrong + ([] if shown.body == [] else [f"the new package shows {shown.body}"])


async def kill_during_deletion(cluster: Cluster, service: str, *, times: int = 1, versions: int = 50) -> Outcome:
    """Die at each step of a deletion, at so many of its repetitions; what nobody asks again for is done in a minute."""
    outcome = Outcome(f"{service} killed while a package with {versions} versions is deleted")
    loop = asyncio.get_running_loop()
    async with single_replica(cluster, service, patches=PAUSES[service]) as steps:
        packages = [await DeletedPackage.create(cluster, versions)]
        steps.start_counting()
        outcome.violations += await packages[0].delete()
        counted = steps.stop_counting()
        for step in _sample_steps(counted, times, versions):
            package = await DeletedPackage.create(cluster, versions)
            packages.append(package)
            steps.die_after(step)
            wrong = await package.delete()
            # Where the deletion was faster, the late version has fewer steps than it had before.
            outcome.times += steps.died
            steps.disarm()
            outcome.violations += [f"{step}: {problem}" for problem in wrong + await package.add_again()]
        began = loop.time()
        outcome.violations += await _remaining_problems(cluster, [package.api.tenant_id for package in packages])
        outcome.recoveries.append(loop.time() - began)
    return outcome


def _sample_steps(steps: list[str], times: int, versions: int) -> list[str]:
    """Of every kind of step so many of its repetitions, the last for a version among them.

    What the late version adds to them is not there each time.
    """
    kinds: dict[str, list[str]] = defaultdict(list)
    for step in steps:
        kind, _, number = step.rpartition(" #")
        if int(number) <= versions:
            kinds[kind].append(step)
    return [found[-1 - place * (len(found) - 1) // times] for found in kinds.values() for place in range(times)]


async def _remaining_problems(cluster: Cluster, tenant_ids: list[str]) -> list[str]:
    """What is still halfway, or wrong, when sweepers and collectors had their time."""
    found: list[str] = []

    async def nothing() -> bool:
        found.clear()
        for tenant_id in tenant_ids:
            state = await State.read(cluster.mongo, tenant_id)
            found.extend(sentence for sentence in state.unsettled() if not sentence.endswith("is complete"))
            found.extend(await violations(cluster, [tenant_id]))
        return not found

    for tenant_id in tenant_ids:
        await cluster.age_tenant(tenant_id, SWEEP_AGE)
    with suppress(TimeoutError):
        await until(nothing, timeout=60)
    return found
