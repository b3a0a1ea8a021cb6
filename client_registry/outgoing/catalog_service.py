"""Calls catalog_service, which knows the packages."""

from collections.abc import Sequence

from common.auth.internal_tokens import Caller
from common.service_client.client import ServiceClient


class CatalogService:
    """Looks up packages. Raises Unavailable if the service does not answer."""

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    async def first_unknown(self, caller: Caller, package_ids: Sequence[str]) -> tuple[str, str] | None:
        """The first id that no package has, and the most similar id that exists or ""; None if all exist."""
        answer = await self._client.json(caller, "unknown_package", {"package_ids": list(package_ids)})
        return None if answer["package_id"] is None else (answer["package_id"], answer["most_similar"])
