"""The policies of all tenants in MongoDB, one document each."""

from collections.abc import Sequence

from catalog_service.releases.policy import Policy
from catalog_service.revisions.model import EVERY_PACKAGE
from catalog_service.revisions.store import MongoRevisions
from common.mongo import MongoDatabase


class MongoPolicyStore:
    """Stores policies. A tenant without a document has no release control."""

    def __init__(self, database: MongoDatabase, revisions: MongoRevisions) -> None:
        self._policies = database["release_policies"]
        self._revisions = revisions

    async def find(self, tenant_id: str) -> Policy:
        document = await self._policies.find_one({"tenant_id": tenant_id}, {"_id": False, "tenant_id": False})
        return Policy.model_validate(document or {})

    async def rings(self, tenant_id: str) -> Sequence[str]:
        """Return the tenant's rings in order; none without release control."""
        policy = await self.find(tenant_id)
        return policy.effective_rings if policy.is_controlled else ()

    async def save(self, tenant_id: str, policy: Policy) -> None:
        """Replace a policy. Every catalog and index is read again, because each version may have other rings now."""
        async with self._revisions.record_change(tenant_id, EVERY_PACKAGE):
            await self._policies.replace_one(
                {"tenant_id": tenant_id}, {"tenant_id": tenant_id, **policy.model_dump(mode="json")}, upsert=True
            )
