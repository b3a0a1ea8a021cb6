"""Retention in catalog_service: the preview, the two steps of a deletion, and the way back."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from catalog_service.releases.gates import Policy
from catalog_service.retention.plan import StoredVersion
from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from tests.support.services.catalog import Catalog
from tests.support.services.releases import checks

DAY = 24 * 3600 * 1000  # milliseconds
KEEP_ONE = {"retention": [{"keep_versions": 1}]}


@pytest.fixture(scope="module", autouse=True)
def no_runs() -> Iterator[None]:
    """The service runs retention only when a test says so."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("catalog_service.app.RETENTION_PAUSE", 3600)
        yield


class Tenant:
    """A tenant with the package acme.editor. Times pass by moving the times in the database."""

    def __init__(self, catalog: Catalog, caller: Caller) -> None:
        self.catalog, self.caller = catalog, caller
        self._query = {"tenant_id": caller.tenant_id}

    async def publish(self, *versions: str, age: int = 100, **fields: str) -> list[str]:
        """Publish versions, and make them `age` days old. Returns their uids."""
        uids = [await self.catalog.add_version(self.caller, package_version=version, **fields) for version in versions]
        await self.pass_days(age)
        return uids

    async def pass_days(self, days: int) -> None:
        """Move the times of publication and of the first step back."""
        for name in ("changed_at", "release.retired_at"):
            await self.catalog.database["versions"].update_many(
                {**self._query, name: {"$ne": None}}, [{"$set": {name: {"$add": [f"${name}", -days * DAY]}}}]
            )

    async def set_policy(self, **fields: Any) -> None:
        await self.catalog.store.policies.edit(self.caller.tenant_id, lambda _: Policy.model_validate(fields))

    async def set_field(self, uid: str, name: str, value: object) -> None:
        await self.catalog.database["versions"].update_one({**self._query, "uid": uid}, {"$set": {name: value}})

    async def make_due(self, uid: str, *, hours: int) -> None:
        """Let the background work look at a version that was due so many hours ago."""
        await self.set_field(uid, "release.due", datetime.now(UTC) - timedelta(hours=hours))

    async def delete(self, uid: str) -> None:
        data = {"versions_uids": uid}
        await self.catalog.call(self.caller, "DELETE", "delete_package_version", "acme.editor", data=data)

    def act_after_the_plan(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]]) -> None:
        """Let another process act as soon as retention has read the versions."""
        store = self.catalog.store.retention
        read = store.versions

        async def read_and_act(tenant_id: str) -> Sequence[StoredVersion]:
            versions = await read(tenant_id)
            await act()
            return versions

        monkeypatch.setattr(store, "versions", read_and_act)

    async def preview(self) -> dict[str, Any]:
        answer = await self.catalog.call(self.caller, "GET", "preview_retention")
        assert answer.status == 200, answer.body
        preview: dict[str, Any] = answer.body
        return preview

    async def run(self) -> None:
        """Run as if the last run was yesterday, and do what follows in the background."""
        await self.catalog.run_retention()
        runs = self.catalog.database["retention_runs"]
        await runs.update_one(self._query, [{"$set": {"work.retention.due": {"$add": ["$work.retention.due", -DAY]}}}])
        await self.catalog.run_retention()
        await self.catalog.releases.run_due()

    @property
    def withheld(self) -> dict[str, bool]:
        """Whether upload_service withholds a file, by version."""
        return {uid: is_withheld for uid, (_, is_withheld) in self.catalog.stubs.withheld.items()}

    async def statuses(self) -> dict[str, str]:
        """The status of each version that is still stored, by its version string."""
        cursor = self.catalog.database["versions"].find({**self._query, "state": "active"}, sort=[("version", -1)])
        return {row["version"]: row.get("stage", {}).get("status", "") async for row in cursor}

    async def release(self, uid: str) -> dict[str, Any]:
        document = await self.catalog.database["versions"].find_one({**self._query, "uid": uid})
        assert document
        release: dict[str, Any] = document["release"]
        return release


@pytest.fixture
async def tenant(catalog: Catalog, caller: Caller) -> AsyncIterator[Tenant]:
    tenant = Tenant(catalog, caller)
    await tenant.set_policy(**KEEP_ONE)
    yield tenant
    for name in ("release_policies", "retention_runs", "versions"):
        await catalog.database[name].delete_many({"tenant_id": caller.tenant_id})


async def test_the_preview_lists_what_goes_and_why(tenant: Tenant) -> None:
    old, _ = await tenant.publish("1.0", "2.0")
    preview = await tenant.preview()
    (row,) = preview["versions"]
    assert row.pop("published_at") < "2030"
    assert row == {
        "uid": old,
        "package_id": "acme.editor",
        "version": "1.0",
        "channel": "stable",
        "file_architect": "x64",
        "size": 4096,
        "reason": "Newer versions of its channel and architecture: at least 1.",
        "codes": ["keep_versions"],
        "params": {"keep_versions": "1"},
    }
    assert (preview["bytes"], preview["total"], preview["retired"], preview["retired_total"]) == (4096, 1, [], 0)
    assert preview["revision"]


@pytest.fixture
async def retired(tenant: Tenant) -> tuple[str, str]:
    """A version that retention has retired eight days ago, and the newer one."""
    old, new = await tenant.publish("1.0", "2.0")
    await tenant.run()
    await tenant.pass_days(8)
    return old, new


async def test_a_limit_cuts_the_lists_and_not_the_totals(tenant: Tenant) -> None:
    await tenant.publish("1.0", "2.0", "3.0")
    body = (await tenant.catalog.call(tenant.caller, "GET", "preview_retention", params={"limit": "1"})).body
    assert (len(body["versions"]), body["total"], body["bytes"]) == (1, 2, 8192)
    answer = await tenant.catalog.call(tenant.caller, "GET", "preview_retention", params={"limit": "x"})
    assert (answer.status, answer.body["code"]) == (400, "invalid_field")


async def test_the_first_step_is_what_the_preview_showed(tenant: Tenant) -> None:
    await tenant.publish("$release", "2.0", "3.0")  # The text of a version is no operator of MongoDB.
    before = await tenant.preview()
    await tenant.run()
    assert {row["version"] for row in before["versions"]} == {"$release", "2.0"}
    assert await tenant.statuses() == {"3.0": "", "2.0": "retired", "$release": "retired"}
    audited = {entry["target"]["version"] for entry in tenant.catalog.stubs.audited.values()}
    assert audited == {"$release", "2.0"}
    preview = await tenant.preview()
    assert (preview["versions"], preview["bytes"], preview["retired_total"]) == ([], 0, 2)
    assert preview["revision"] != before["revision"]
    for row in preview["retired"]:
        assert row["deleted_at"] > row["published_at"]


async def test_a_new_policy_runs_on_the_next_day(tenant: Tenant) -> None:
    await tenant.publish("1.0", "2.0")
    await tenant.catalog.run_retention()
    assert await tenant.statuses() == {"2.0": "", "1.0": ""}


async def test_a_tenant_has_one_run_a_day(tenant: Tenant) -> None:
    await tenant.publish("2.0")
    await tenant.run()
    await tenant.publish("1.0")
    await tenant.catalog.run_retention()
    assert await tenant.statuses() == {"2.0": "", "1.0": ""}


async def test_a_retired_version_is_deleted_after_seven_days(tenant: Tenant) -> None:
    uids = await tenant.publish("1.0", "2.0")
    await tenant.run()
    await tenant.pass_days(6)
    await tenant.run()
    assert await tenant.statuses() == {"2.0": "", "1.0": "retired"}
    await tenant.pass_days(1)
    await tenant.run()
    assert await tenant.statuses() == {"2.0": ""}
    assert tenant.catalog.stubs.linked_uids == {uids[1]}


@pytest.mark.parametrize("change", ["pinned", "newest again", "dependency", "rule", "no rule"])
async def test_a_version_that_is_protected_meanwhile_comes_back(
    tenant: Tenant, retired: tuple[str, str], change: str
) -> None:
    old, new = retired
    match change:
        case "pinned":
            await tenant.set_field(old, "release.pinned", value=True)
        case "newest again":
            await tenant.delete(new)
        case "dependency":
            await tenant.set_field(new, "dependencies.packages", [{"package_id": "acme.editor", "min_version": "1"}])
        case "rule":
            await tenant.set_policy(retention=[{"keep_versions": 2}])
        case "no rule":
            await tenant.set_policy()
    (row,) = (await tenant.preview())["retired"]
    await tenant.run()
    assert (row["version"], row["deleted_at"]) == ("1.0", None)
    assert (await tenant.statuses())["1.0"] == "active"
    assert (await tenant.release(old))["retired_at"] is None


@pytest.mark.parametrize("change", ["newest again", "resumed"])
async def test_a_version_that_is_protected_during_the_plan_is_not_deleted(
    tenant: Tenant, retired: tuple[str, str], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    old, new = retired
    acts = {
        "newest again": lambda: tenant.delete(new),
        "resumed": lambda: tenant.set_field(old, "stage.status", "active"),
    }
    tenant.act_after_the_plan(monkeypatch, acts[change])
    await tenant.run()
    assert (await tenant.statuses())["1.0"] == "active"


@pytest.mark.parametrize(("name", "value"), [("release.pinned", True), ("release.fence", 5), ("state", "deleting")])
async def test_a_version_that_changed_since_the_plan_is_not_retired(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    old, _ = await tenant.publish("1.0", "2.0")
    tenant.act_after_the_plan(monkeypatch, lambda: tenant.set_field(old, name, value))
    await tenant.run()
    assert "retired" not in (await tenant.statuses()).values()


@pytest.mark.parametrize(("operation", "data"), [("pin_version", {"pinned": "1"}), ("resume_version", {})])
async def test_a_person_brings_a_retired_version_back_for_good(
    tenant: Tenant, retired: tuple[str, str], operation: str, data: dict[str, str]
) -> None:
    old, _ = retired
    method = "PATCH" if operation == "pin_version" else "POST"
    answer = await tenant.catalog.call(tenant.caller, method, operation, old, data=data)
    assert answer.status == 200, answer.body
    await tenant.run()
    assert await tenant.statuses() == {"2.0": "", "1.0": "active"}
    assert tenant.withheld == {old: False}


async def test_the_file_of_a_retired_version_is_withheld(tenant: Tenant) -> None:
    old, _ = await tenant.publish("1.0", "2.0")
    await tenant.run()
    assert tenant.withheld == {old: True}
    await tenant.set_policy()
    await tenant.run()
    assert tenant.withheld == {old: False}


async def test_each_step_is_in_the_audit_log_once(tenant: Tenant) -> None:
    old, _ = await tenant.publish("1.0", "2.0")
    await tenant.run()
    await tenant.pass_days(8)
    await tenant.set_policy()
    await tenant.run()
    assert [event["event"] for event in (await tenant.release(old))["history"]] == ["retired", "resumed"]
    await tenant.set_policy(**KEEP_ONE)
    await tenant.run()
    await tenant.pass_days(8)
    await tenant.run()
    entries = list(tenant.catalog.stubs.audited.values())
    assert sorted(entry["target"]["step"] for entry in entries) == ["deleted", "resumed", "retired", "retired"]
    assert {entry["operation"] for entry in entries} == {"retention"}
    assert {entry["target"]["uid"] for entry in entries} == {old}


async def test_an_infected_version_that_is_kept_again_is_held(tenant: Tenant, catalog: Catalog) -> None:
    old, _ = await tenant.publish("1.0", "2.0")
    await tenant.set_policy(**KEEP_ONE)
    await tenant.run()
    catalog.stubs.infected = [(tenant.caller.tenant_id, old)]
    await tenant.set_policy()
    await tenant.run()
    assert await tenant.statuses() == {"2.0": "", "1.0": "held"}
    assert tenant.withheld == {old: True}
    assert [event["event"] for event in (await tenant.release(old))["history"]] == ["retired", "held"]


async def test_a_deleted_version_stays_recorded_until_the_audit_log_has_it(
    tenant: Tenant, retired: tuple[str, str]
) -> None:
    tenant.catalog.stubs.release_refusal = Unavailable("The audit log does not answer.")
    await tenant.run()
    await tenant.catalog.age_and_sweep()
    assert await tenant.statuses() == {"2.0": ""}
    assert await tenant.catalog.count_records(tenant.caller) == 3
    tenant.catalog.stubs.release_refusal = None
    await tenant.make_due(retired[0], hours=1)
    await tenant.catalog.releases.run_due()
    await tenant.catalog.age_and_sweep()
    assert await tenant.catalog.count_records(tenant.caller) == 2
    assert [entry["target"]["step"] for entry in tenant.catalog.stubs.audited.values()] == ["retired", "deleted"]


async def test_a_deletion_that_is_not_audited_delays_no_other_version(
    tenant: Tenant, retired: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = retired
    tenant.catalog.stubs.release_refusal = Unavailable("The audit log does not answer.")
    await tenant.run()
    await tenant.make_due(old, hours=2)
    await tenant.make_due(new, hours=1)
    monkeypatch.setattr("catalog_service.releases.service.BATCH", 1)
    for _ in range(2):
        await tenant.catalog.releases.run_due()
    assert (await tenant.release(new))["due"] is None


async def test_unknown_and_recent_downloads_keep_versions(tenant: Tenant) -> None:
    await tenant.set_policy(retention=[{"downloaded_days": 30}])
    old, _ = await tenant.publish("1.0", "2.0")
    assert (await tenant.preview())["versions"] == []
    tenant.catalog.stubs.counting_since = "2020-01-01"
    assert [row["version"] for row in (await tenant.preview())["versions"]] == ["1.0"]
    assert tenant.catalog.stubs.days == 32
    today = (await tenant.catalog.store.retention.now()).date().isoformat()
    tenant.catalog.stubs.downloads[old] = {"2020-01-02": 1, today: 2}
    assert (await tenant.preview())["versions"] == []


async def test_the_signer_of_deleted_versions_is_remembered(tenant: Tenant) -> None:
    old, newest = await tenant.publish("1.0", "2.0")
    tenant.catalog.stubs.checks |= {old: checks(signer="CN=Former"), newest: checks()}
    releases = tenant.catalog.store.releases
    await tenant.run()
    await tenant.pass_days(7)
    await tenant.run()
    assert await tenant.statuses() == {"2.0": ""}
    last = await releases.last_signer(tenant.caller.tenant_id, "acme.editor")
    assert last
    assert last.signer == "CN=Former"
    earlier, _ = await releases.earlier(replace(await releases.find(tenant.caller.tenant_id, newest), uid="another"))
    assert earlier[0].rank > last.rank
