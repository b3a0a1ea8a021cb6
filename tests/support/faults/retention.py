"""A tenant whose old version retention deletes, and catalog_service killed at each step of that."""

import os
from dataclasses import dataclass
from functools import partial

from tests.support.faults.crash_steps import kill_at_steps
from tests.support.faults.publishers import wait_until_announced
from tests.support.faults.results import Outcome
from tests.support.faults.retrying_uploader import RetryingClient
from tests.support.processes.cluster import SHORT_PAUSES, Cluster
from tests.support.processes.failpoint_control import StepControl
from tests.support.system.publishing import Published, package_id
from tests.support.system.services import Api
from tests.support.wait import until

SERVICE = "catalog_service"
DAY = 24 * 3600  # seconds
LEASES = 61  # seconds after which a lease has expired, and the sweeper finishes deletions
IS_LATER = {"$gt": ["$work.retention.due", "$$NOW"]}


async def kill_during_retention(cluster: Cluster) -> Outcome:
    """Kill catalog_service at each step of both runs: the one that retires a version, and the one that deletes it."""
    outcome = Outcome("catalog_service killed while retention retires and deletes a version")
    patches = {place: pause for place, pause in SHORT_PAUSES.items() if place.startswith(SERVICE)}
    create = partial(RetentionScenario.create, cluster)
    return await kill_at_steps(cluster, SERVICE, outcome, create, age=LEASES, patches=patches)


@dataclass(frozen=True)
class RetentionScenario:
    """A package with two old versions of which a rule keeps one. Times pass by moving the times in the database."""

    cluster: Cluster
    api: Api
    old: Published
    new: Published
    steps: StepControl | None = None

    @classmethod
    async def create(cls, cluster: Cluster, steps: StepControl | None = None) -> "RetentionScenario":
        client, name = RetryingClient(await cluster.services.tenant()), package_id()
        form = {"package_id": name, "package_name": "Kept", "package_publisher": "Acme"}
        await client.call("POST", "add_package", data=form)
        old, new = [await client.publish(name, version, os.urandom(1000)) for version in ("1.0", "2.0")]
        await wait_until_announced(cluster, client.api.tenant_id)
        scenario = cls(cluster, client.api, old, new, steps)
        await cluster.age_tenant(scenario.api.tenant_id, 3 * DAY)
        policy = {"tenant_id": scenario.api.tenant_id, "rings": [], "gates": {}, "retention": [{"keep_versions": 1}]}
        await cluster.mongo["catalog"]["release_policies"].insert_one(policy)
        await until(scenario._is_known)
        return scenario

    async def begin_day(self) -> None:
        """Let the last run be of yesterday, and leases be expired."""
        await self.cluster.age_tenant(self.api.tenant_id, DAY)

    async def pass_days(self, days: int) -> None:
        """Make the first step older, without a new run, when no process writes the release any more."""
        await until(self._is_settled)
        await self.cluster.mongo["catalog"]["versions"].update_many(
            {"tenant_id": self.api.tenant_id, "release.retired_at": {"$type": "date"}},
            [{"$set": {"release.retired_at": {"$subtract": ["$release.retired_at", days * DAY * 1000]}}}],
        )

    async def _is_settled(self) -> bool:
        version = await self.cluster.mongo["catalog"]["versions"].find_one({"uid": self.old.uid}) or {}
        release = version.get("release", {})
        return not (release.get("is_untold") or release.get("unaudited") or release.get("due"))

    async def is_run(self) -> bool:
        """Whether a run of today is complete."""
        runs = self.cluster.mongo["catalog"]["retention_runs"]
        done = {"tenant_id": self.api.tenant_id, "work.retention.lease": None, "$expr": IS_LATER}
        return await runs.find_one(done) is not None

    async def state(self) -> str:
        """The status of the old version, `deleting`, or "" after its deletion."""
        version = await self.cluster.mongo["catalog"]["versions"].find_one({"uid": self.old.uid})
        if version is None:
            return ""
        status: str = version.get("stage", {}).get("status", "active")
        return status if version["state"] == "active" else "deleting"

    async def run(self) -> list[str]:
        """Let both runs pass, each on its day."""
        problems = []
        for number, expected in enumerate(("retired", ""), 1):
            await self._pass_run()
            if (state := await self.state()) != expected:
                problems.append(f"the old version is {state or 'deleted'} after run {number}")
            await self.pass_days(8)
        return problems

    async def check(self) -> list[str]:
        client, problems = RetryingClient(self.api), []
        versions = (await client.call("GET", "get_package_versions", self.new.package_id)).body
        if [row["UID"] for row in versions] != [self.new.uid]:
            problems.append(f"the package shows {versions}")
        entries = (await client.call("GET", "get_audit_log", params={"operation": "retention"})).body
        audited = [entry["target"]["step"] for entry in entries]
        if audited != ["deleted", "retired"]:
            problems.append(f"the audit log has the steps {audited}")
        return problems

    async def _pass_run(self) -> None:
        """Wait until a run is complete and deletions are finished. Leases have expired if the service dies."""
        had_died = self.steps is None or self.steps.died

        async def is_over() -> bool:
            return await self.is_run() and await self.state() != "deleting"

        async def has_stopped() -> bool:
            return (self.steps is not None and self.steps.died and not had_died) or await is_over()

        await self.begin_day()
        await until(has_stopped)
        if not await is_over():
            await self.cluster.ready()
            await self.cluster.age_tenant(self.api.tenant_id, LEASES)
            await until(is_over)

    async def _is_known(self) -> bool:
        runs = self.cluster.mongo["catalog"]["retention_runs"]
        return await runs.find_one({"tenant_id": self.api.tenant_id}) is not None
