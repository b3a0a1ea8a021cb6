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
        return policy.shown_rings

    async def edit(self, tenant_id: str, change: Callable[[Policy], Policy]) -> tuple[Policy, Policy]:
        """Change a policy; return it before and after. `change` is called again if another edit comes first.

        Raises what it raises.
        """
        while True:
            stored = await self._policies.find_one({"tenant_id": tenant_id}, PARTS)
            before = Policy.model_validate(stored or {})
            policy = change(before)
            key = {"tenant_id": tenant_id, **(stored or dict.fromkeys(Policy.model_fields))}
            with suppress(PolicyChanged):
                if before != policy and before.model_copy(update={"ring_rules": policy.ring_rules}) == policy:
                    async with self._revisions.invalidate_during(tenant_id):  # No version has other rings now.
                        await self._replace(key, policy)
                else:
                    await self._replace_for_versions(key, policy)
                return before, policy

    async def _replace(self, key: Document, policy: Policy) -> None:
        """Replace the policy that `key` has whole. Raises PolicyChanged."""
        try:
            await self._policies.update_one(key, {"$set": policy.model_dump(mode="json")}, upsert=True)
        except DuplicateKeyError:  # The policy is not the one before any more.
            raise PolicyChanged from None

    async def _replace_for_versions(self, key: Document, policy: Policy) -> None:
        """Replace a policy. All versions in flight are looked at again.

        Every catalog and index is read again, because each version may have other rings now.
        """
        tenant_id = key["tenant_id"]
        async with self._revisions.record_change(tenant_id, EVERY_PACKAGE):
            await self._replace(key, policy)
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
