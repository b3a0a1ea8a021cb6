"""The policies of all tenants in MongoDB, one document each."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from pymongo.errors import DuplicateKeyError

from catalog_service.catalog.revision_store import EVERY_PACKAGE, MongoRevisions
from catalog_service.model.releases import BEGIN, DUE_NOW
from catalog_service.releases.policy import Policy
from common.errors import Conflict
from common.mongo import Document, MongoDatabase

UNFINISHED: Document = {"halfway": True, "changed_at": {"$type": "date"}}  # An index has only these versions.
UNTOLD = {"release.is_untold": True}
PARTS: Document = {"_id": False, "tenant_id": False}  # of a policy's document


class PolicyChanged(Conflict):
    """Another edit changed the policy since it was read."""


class MongoPolicyStore:
    """Stores policies. A tenant without a document has no release control."""

    def __init__(self, database: MongoDatabase, revisions: MongoRevisions) -> None:
        self._policies = database["release_policies"]
        self._versions = database["versions"]
        self._revisions = revisions

    async def find(self, tenant_id: str) -> Policy:
        return Policy.model_validate(await self._policies.find_one({"tenant_id": tenant_id}, PARTS) or {})

    async def rings(self, tenant_id: str) -> Sequence[str]:
        """Return the tenant's rings in order; none without release control."""
        policy = await self.find(tenant_id)
        return policy.effective_rings if policy.is_controlled else ()

    async def edit(self, tenant_id: str, change: Callable[[Policy], Policy]) -> Policy:
        """Change a policy. `change` is called again if another edit comes first. Raises what it raises."""
        while True:
            before = await self._policies.find_one({"tenant_id": tenant_id}, PARTS)
            policy = change(Policy.model_validate(before or {}))
            with suppress(PolicyChanged):
                await self._replace(tenant_id, before or dict.fromkeys(Policy.model_fields), policy)
                return policy

    async def _replace(self, tenant_id: str, before: Document, policy: Policy) -> None:
        """Replace the stored parts of a policy. All versions in flight are looked at again.

        Every catalog and index is read again, because each version may have other rings now.
        """
        async with self._revisions.record_change(tenant_id, EVERY_PACKAGE):
            key, parts = {"tenant_id": tenant_id, **before}, policy.model_dump(mode="json")
            try:
                await self._policies.update_one(key, {"$set": parts}, upsert=True)
            except DuplicateKeyError:  # The policy is not the one before any more.
                raise PolicyChanged from None
            if policy.is_controlled:  # The activation of such a version may have read the earlier policy.
                pending = {"tenant_id": tenant_id, "state": "pending", **UNFINISHED}
                await self._versions.update_many(pending, {"$set": {**BEGIN, **UNTOLD}, "$currentDate": DUE_NOW})
            # The fence makes a change fail that read the earlier policy.
            in_flight = {"tenant_id": tenant_id, "release.in_flight": True}
            again: Document = {"$set": UNTOLD, "$inc": {"release.fence": 1}, "$currentDate": DUE_NOW}
            await self._versions.update_many(in_flight, again)

    async def with_scan(self) -> Sequence[str]:
        """Return the tenants whose policies have a scan gate."""
        policies = self._policies.find({"tenant_id": {"$gt": ""}}, {"_id": False, "tenant_id": True, "gates": True})
        return [
            document["tenant_id"]
            async for document in policies
            if any(gates.get("scan") for gates in document.get("gates", {}).values())
        ]
