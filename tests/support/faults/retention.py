"""A tenant whose old version retention deletes, and catalog_service killed at each step of that."""

import os
from contextlib import suppress
from dataclasses import dataclass

from tests.support.faults.invariants import violations
from tests.support.faults.publishers import wait_until_announced
from tests.support.faults.results import Outcome
from tests.support.faults.retrying_uploader import RetryingClient
from tests.support.processes.cluster import SHORT_PAUSES, Cluster
from tests.support.processes.failpoint_control import StepControl, single_replica
from tests.support.system.publishing import Published, package_id
from tests.support.system.services import Api
from tests.support.wait import until

SERVICE = "catalog_service"
DAY = 24 * 3600  # seconds
LEASES = 61  # seconds after which a lease has expired, and the sweeper finishes deletions
RECORDS = 2  # recordings of the steps; background work adds others


@dataclass(frozen=True)
class RetentionScenario:
    """A package with two old versions of which a rule keeps one. Times pass by moving the times in the database."""

    cluster: Cluster
    api: Api
    old: Published
    new: Published

    @classmethod
    async def create(cls, cluster: Cluster) -> "RetentionScenario":
        client, name = RetryingClient(await cluster.services.tenant()), package_id()
        form = {"package_id": name, "package_name": "Kept", "package_publisher": "Acme"}
        await client.call("POST", "add_package", data=form)
        old, new = [await client.publish(name, version, os.urandom(1000)) for version in ("1.0", "2.0")]
        await wait_until_announced(cluster, client.api.tenant_id)
        scenario = cls(cluster, client.api, old, new)
        await cluster.age_tenant(scenario.api.tenant_id, 3 * DAY)
        policy = {"tenant_id": scenario.api.tenant_id, "rings": [], "gates": {}, "retention": [{"keep_versions": 1}]}
        await cluster.mongo["catalog"]["release_policies"].insert_one(policy)
        await until(scenario._is_known)
        return scenario

    async def begin_day(self) -> None:
        """Let the last run be of yesterday, and leases be expired."""
        await self.cluster.age_tenant(self.api.tenant_id, DAY)

    async def pass_days(self, days: int) -> None:
        """Make the first step older, without a new run, after releases have written what it left to them."""
        await until(self._is_settled)
        await self.cluster.mongo["catalog"]["versions"].update_many(
            {"tenant_id": self.api.tenant_id, "release.retired_at": {"$type": "date"}},
            [{"$set": {"release.retired_at": {"$subtract": ["$release.retired_at", days * DAY * 1000]}}}],
        )

    async def _is_settled(self) -> bool:
        version = await self.cluster.mongo["catalog"]["versions"].find_one({"uid": self.old.uid}) or {}
        release = version.get("release", {})
        return not (release.get("is_untold") or release.get("unaudited"))

    async def is_run(self) -> bool:
        """Whether a run of today is complete."""
        runs = self.cluster.mongo["catalog"]["retention_runs"]
        return (
            await runs.find_one({"tenant_id": self.api.tenant_id, "work.retention.lease": None, "$expr": _IS_LATER})
            is not None
        )

    async def state(self) -> str:
        """The status of the old version, `deleting`, or "" after its deletion."""
        version = await self.cluster.mongo["catalog"]["versions"].find_one({"uid": self.old.uid})
        if version is None:
            return ""
        status: str = version.get("stage", {}).get("status", "active")
        return status if version["state"] == "active" else "deleting"

    async def audited_steps(self) -> list[str]:
        """The steps in the audit log, the latest first."""
        client = RetryingClient(self.api)  # The replica may still be restarting.
        entries = (await client.call("GET", "get_audit_log", params={"operation": "retention"})).body
        return [entry["target"]["step"] for entry in entries]

    async def _is_known(self) -> bool:
        runs = self.cluster.mongo["catalog"]["retention_runs"]
        return await runs.find_one({"tenant_id": self.api.tenant_id}) is not None


_IS_LATER = {"$gt": ["$work.retention.due", "$$NOW"]}


async def kill_during_retention(cluster: Cluster) -> Outcome:
    """Kill catalog_service at each step of both runs: the one that retires a version, and the one that deletes it."""
    outcome = Outcome("catalog_service killed while retention retires and deletes a version")
    patches = {place: pause for place, pause in SHORT_PAUSES.items() if place.startswith(SERVICE)}
    async with single_replica(cluster, SERVICE, patches=patches) as steps:
        recorded = [await _record(cluster, steps) for _ in range(RECORDS)]
        for run, (first, second) in enumerate(zip(*recorded, strict=True)):
            for step in (step for step in first if step in second):
                outcome.violations += [f"{step}: {problem}" for problem in await _kill(cluster, steps, run, step)]
                outcome.times += steps.died
                steps.disarm()
    return outcome


async def _record(cluster: Cluster, steps: StepControl) -> tuple[list[str], list[str]]:
    """The steps of both runs."""
    scenario, recorded = await RetentionScenario.create(cluster), []
    for _ in range(2):
        steps.start_counting()
        await scenario.begin_day()
        await until(scenario.is_run)
        recorded.append(steps.stop_counting())
        await scenario.pass_days(8)
    return recorded[0], recorded[1]


async def _kill(cluster: Cluster, steps: StepControl, killed_run: int, step: str) -> list[str]:
    """Kill the service at a step of one of the runs. Returns what is wrong afterwards, each as a sentence."""
    scenario, problems = await RetentionScenario.create(cluster), []
    for run, expected in enumerate(("retired", "")):
        if run == killed_run:
            steps.die_after(step)
        await scenario.begin_day()
        problems += await _wait_for_run(scenario)
        if (state := await scenario.state()) != expected:
            problems.append(f"the old version is {state or 'deleted'} after run {run + 1}")
        await scenario.pass_days(8)
    client = RetryingClient(scenario.api)  # The replica may still be restarting.
    versions = (await client.call("GET", "get_package_versions", scenario.new.package_id)).body
    if [row["UID"] for row in versions] != [scenario.new.uid]:
        problems.append(f"the package shows {versions}")
    audited = await scenario.audited_steps()
    if audited != ["deleted", "retired"]:
        problems.append(f"the audit log has the steps {audited}")
    return problems + await violations(cluster, [scenario.api.tenant_id])


async def _wait_for_run(scenario: RetentionScenario) -> list[str]:
    """Wait until a run is complete and deletions are finished, after leases have expired if the service died."""

    async def is_over() -> bool:
        return await scenario.is_run() and await scenario.state() != "deleting"

    with suppress(TimeoutError):
        await until(is_over, timeout=3)
    if not await is_over():
        await scenario.cluster.ready()
        await scenario.cluster.age_tenant(scenario.api.tenant_id, LEASES)
    try:
        await until(is_over, timeout=30)
    except TimeoutError:
        return ["the run does not end"]
    return []
