"""Calls catalog_service, which owns the tenant's policy for releases."""

from collections.abc import Mapping

from common.auth.internal_tokens import Caller
from common.service_client.client import ServiceClient


class CatalogService:
    """Edits policies. Raises UpstreamProblem for a refusal, Unavailable if the service does not answer."""

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    async def edit_release_policy(self, caller: Caller, texts: Mapping[str, str]) -> dict[str, object]:
        """Change `rings`, `gates` or `retention`, or nothing; return all three as fields of `Tenant`."""
        policy = await self._client.json(caller, "edit_release_policy", texts)
        return {"rings": tuple(policy["rings"]), "gates": policy["gates"], "retention": policy["retention"]}
