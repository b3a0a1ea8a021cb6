"""Calls to auth_service, which has the audit log."""

from collections.abc import Mapping

from common.auth.internal_tokens import Caller
from common.service_client.client import ServiceClient


class AuthService:
    """Records automatic changes in the audit log."""

    def __init__(self, service: ServiceClient) -> None:
        self._service = service

    async def record(self, caller: Caller, entry: Mapping[str, object]) -> None:
        """Add an entry; the same one again changes nothing. Raises Unavailable."""
        await self._service.json(caller, "record_audit", entry)
