"""The policies of all tenants in MongoDB, one document each."""

from collections.abc import Collection, Sequence

from catalog_service.releases.policy import Policy
from catalog_service.revisions.model import EVERY_PACKAGE
from catalog_service.revisions.store import MongoRevisions
from common.mongo import Document, MongoDatabase

# The fields of a version that begins before the first ring.
BEGIN: Document = {"stage": {"rings": [], "status": "active"}, "release.fence": 1, "release.in_flight": True}
UNFINISHED: Document = {"halfway": True, "changed_at": {"$type": "date"}}  # An index has only these versions.
DUE_NOW = {"release.due": True}  # for `$currentDate`


class MongoPolicyStore:
    """Stores policies. A tenant without a document has no release control."""

    def __init__(self, database: MongoDatabase, revisions: MongoRevisions) -> None:
        self._policies = database["release_policies"]
        self._versions = database["versions"]
        self._revisions = revisions

    async def find(self, tenant_id: str) -> Policy:
        document = await self._policies.find_one({"tenant_id": tenant_id}, {"_id": False, "tenant_id": False})
        return Policy.model_validate(document or {})

    async def rings(self, tenant_id: str) -> Sequence[str]:
        """Return the tenant's rings in order; none without release control."""
        policy = await self.find(tenant_id)
        return policy.effective_rings if policy.is_controlled else ()

    async def save(self, tenant_id: str, policy: Policy, names: Collection[str] = tuple(Policy.model_fields)) -> None:
        """Replace these parts of a policy. All versions in flight are looked at again.

        Every catalog and index is read again, because each version may have other rings now.
        """
        async with self._revisions.record_change(tenant_id, EVERY_PACKAGE):
            parts = policy.model_dump(mode="json")
            changed = {name: parts.pop(name) for name in names}
            key = {"tenant_id": tenant_id}
            await self._policies.update_one(key, {"$set": changed, "$setOnInsert": parts}, upsert=True)
            if policy.is_controlled:  # The activation of such a version may have read the earlier policy.
                pending = {"tenant_id": tenant_id, "state": "pending", **UNFINISHED}
                await self._versions.update_many(pending, {"$set": BEGIN, "$currentDate": DUE_NOW})
            # The fence makes a change fail that read the earlier policy.
            in_flight = {"tenant_id": tenant_id, "release.in_flight": True}
            await self._versions.update_many(in_flight, {"$inc": {"release.fence": 1}, "$currentDate": DUE_NOW})

    async def with_scan(self) -> Sequence[str]:
        """Return the tenants whose policies have a scan gate."""
        policies = self._policies.find({"tenant_id": {"$gt": ""}}, {"_id": False, "tenant_id": True, "gates": True})
        return [
            document["tenant_id"]
            async for document in policies
            if any(gates.get("scan") for gates in document.get("gates", {}).values())
        ]
