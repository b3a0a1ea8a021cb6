"""Versions on their way through rings and gates, at a catalog_service with stubs of the other services."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from common.auth.internal_tokens import Caller
from tests.support.api import Answer
from tests.support.factories import make_caller
from tests.support.services.catalog import Catalog
from tests.support.services.stand_ins import DIGEST, NO_SCAN, NO_SIGNATURE

RINGS = ("pilot", "broad", "everyone")


def checks(scan: str = "clean", signature: str = "valid", sha256: str = DIGEST, **fields: Any) -> dict[str, Any]:
    """The checks of a file as upload_service answers them, made now. `fields` are of the signature."""
    at = datetime.now(UTC).isoformat()
    return {
        "sha256": sha256,
        "scan": {**NO_SCAN, "state": scan, "sha256": sha256, "at": at},
        "signature": {**NO_SIGNATURE, "state": signature, "signer": "CN=Acme", "at": at, **fields},
    }


@dataclass
class ReleaseTenant:
    """A tenant with the package acme.editor. `ada` publishes, `bob` and `eve` approve."""

    catalog: Catalog
    ada: Caller = field(default_factory=lambda: make_caller(username="ada"))

    @property
    def bob(self) -> Caller:
        return replace(self.ada, username="bob")

    @property
    def eve(self) -> Caller:
        return replace(self.ada, username="eve")

    async def set_policy(self, rings: str | None = ",".join(RINGS), **fields: Any) -> dict[str, Any]:
        """Change rings, ring rules and retention (lists) and gates (an object). Returns the policy."""
        texts = {
            name: value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in fields.items()
        }
        body = texts if rings is None else {"rings": rings, **texts}
        answer = await self.catalog.call(self.ada, "PATCH", "edit_release_policy", data=body)
        assert answer.status == 200, answer.body
        return await self.policy()

    async def policy(self) -> dict[str, Any]:
        policy: dict[str, Any] = (await self.catalog.call(self.ada, "POST", "find_release_policy", json={})).body
        return policy

    async def publish(self, version: str = "1.0", **fields: Any) -> str:
        return await self.catalog.add_version(self.ada, package_version=version, **fields)

    async def publish_signed(self, version: str, signer: str = "CN=Acme", **fields: Any) -> str:
        """Publish a version whose file has a valid signature, and let it enter the rings that are open to it."""
        uid = await self.publish(version, **fields)
        self.catalog.stubs.checks[uid] = checks(signer=signer)
        await self.rounds()
        return uid

    async def signer_reason(self, uid: str) -> str:
        """The reason of the signature gate before the first ring."""
        reason: str = (await self.gate(uid, RINGS[0], "signature"))["reason"]
        return reason

    async def delete_package(self) -> None:
        answer = await self.catalog.call(self.ada, "DELETE", "delete_package", "acme.editor")
        assert answer.status == 200, answer.body

    async def delete_versions(self, *uids: str) -> None:
        data = {"versions_uids": ",".join(uids)}
        answer = await self.catalog.call(self.ada, "DELETE", "delete_package_version", "acme.editor", data=data)
        assert answer.status == 200, answer.body

    async def call(self, caller: Caller, operation: str, uid: str, **data: str) -> Answer:
        """Send a write of release control."""
        method = "PATCH" if operation == "pin_version" else "POST"
        return await self.catalog.call(caller, method, operation, uid, data=data)

    async def is_withheld(self, uid: str) -> bool:
        return self.catalog.stubs.withheld.get(uid, (0, False))[1]

    async def done(self, caller: Caller, operation: str, uid: str, **data: str) -> dict[str, Any]:
        """Send a write, which succeeds. Returns the answer."""
        answer = await self.call(caller, operation, uid, **data)
        assert answer.status == 200, answer.body
        body: dict[str, Any] = answer.body
        return body

    async def release(self, uid: str) -> dict[str, Any]:
        answer = await self.catalog.call(self.ada, "GET", "get_release", uid)
        assert answer.status == 200, answer.body
        release: dict[str, Any] = answer.body
        return release

    async def releases(self) -> dict[str, dict[str, Any]]:
        """The releases of all versions, by their uids."""
        answer = await self.catalog.call(self.ada, "GET", "find_releases", params={"state": "all"})
        return {release["uid"]: release for release in answer.body["releases"]}

    async def stage(self, uid: str) -> str:
        stage: str = (await self.release(uid))["stage"]
        return stage

    async def gate(self, uid: str, ring: str, gate: str) -> dict[str, Any]:
        """The state of a gate before a ring."""
        rings = (await self.release(uid))["rings"]
        gates = next(row["gates"] for row in rings if row["ring"] == ring)
        state: dict[str, Any] = next(row for row in gates if row["gate"] == gate)
        return state

    async def offered(self, uid: str) -> list[str]:
        """The rings that are offered a version."""
        return [row["ring"] for row in (await self.release(uid))["rings"] if row["offered"]]

    def audited(self, uid: str) -> list[tuple[str, dict[str, str]]]:
        """The operations and targets of the automatic changes of a version in the audit log."""
        entries = self.catalog.stubs.audited.values()
        return [(entry["operation"], entry["target"]) for entry in entries if entry["target"]["uid"] == uid]

    async def rounds(self, number: int = 2) -> None:
        """Run the background loop as often as given, as if each pause were over."""
        for _ in range(number):
            await self.catalog.database["versions"].update_many(
                {"tenant_id": self.ada.tenant_id, "release.due": {"$type": "date"}},
                {"$set": {"release.due": datetime.now(UTC) - timedelta(hours=1)}},
            )
            await self.catalog.releases.run_due()

    async def days_pass(self, days: float) -> None:
        """Move all stored times of the tenant's versions into the past, and run the loop."""
        milliseconds = int(days * 24 * 3600 * 1000)
        entered = {
            "$map": {
                "input": "$release.entered",
                "in": {"$mergeObjects": ["$$this", {"at": {"$subtract": ["$$this.at", milliseconds]}}]},
            }
        }
        await self.catalog.database["versions"].update_many(
            {"tenant_id": self.ada.tenant_id},
            [{"$set": {"changed_at": {"$subtract": ["$changed_at", milliseconds]}, "release.entered": entered}}],
        )
        await self.rounds()
