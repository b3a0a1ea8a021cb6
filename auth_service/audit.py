"""The audit log: what administrators wrote and who signed in, appended and never changed."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from auth_service.model import AuditEntry


class AuditStore(Protocol):
    """Where entries are kept."""

    async def append(self, tenant_id: str, entry: AuditEntry) -> None: ...

    async def list(
        self, tenant_id: str, *, before: str, limit: int, user: str, operation: str
    ) -> Sequence[AuditEntry]: ...


class Audit:
    """Writes and reads a tenant's audit log."""

    def __init__(self, store: AuditStore) -> None:
        self._store = store

    async def record(
        self,
        tenant_id: str,
        operation: str,
        *,
        user: str,
        ip: str,
        status: int,
        request_id: str,
        target: dict[str, str] | None = None,
    ) -> None:
        """Append an entry, dated now."""
        entry = AuditEntry(operation, user, ip, status, request_id, target or {}, datetime.now(UTC))
        await self._store.append(tenant_id, entry)

    async def list(
        self, tenant_id: str, *, before: str = "", limit: int = 100, user: str = "", operation: str = ""
    ) -> Sequence[AuditEntry]:
        """The newest entries first: at most `limit`, older than the entry `before`, of one user or operation."""
        return await self._store.list(tenant_id, before=before, limit=limit, user=user, operation=operation)
