"""The packages that are hidden from clients."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import uuid4

from client_registry.blacklist.model import Entry, EntryNotFound, Group, GroupNotFound
from client_registry.blacklist.store import MongoBlacklistStore
from client_registry.clients.model import uuid_text
from common.auth.internal_tokens import Caller, Kind


class Blacklist:
    """Manages entries and groups, and computes the packages that are hidden from a caller."""

    def __init__(self, store: MongoBlacklistStore) -> None:
        self._store = store

    async def entries(self, tenant_id: str) -> Sequence[Entry]:
        """A tenant's entries, oldest first."""
        return await self._store.entries(tenant_id)

    async def add_entry(self, tenant_id: str, entry: Entry) -> None:
        """Raises ClientNotFound or GroupNotFound for a client or a group that does not exist."""
        await self._store.add_entry(tenant_id, entry)

    async def delete_entry(self, tenant_id: str, entry_id: str) -> None:
        """Raises EntryNotFound."""
        if not await self._store.delete_entry(tenant_id, uuid_text(entry_id) or ""):
            raise EntryNotFound

    async def groups(self, tenant_id: str) -> Sequence[Group]:
        """A tenant's groups, by name."""
        return await self._store.groups(tenant_id)

    async def add_group(self, tenant_id: str, name: str, package_ids: Sequence[str]) -> Group:
        """Raises GroupExists for a duplicate name, letter case aside."""
        group = Group(str(uuid4()), name, tuple(package_ids), datetime.now(UTC))
        await self._store.add_group(tenant_id, group)
        return group

    async def delete_group(self, tenant_id: str, group_id: str) -> None:
        """Raises GroupNotFound, or GroupInUse while an entry names it."""
        if not await self._store.delete_group(tenant_id, uuid_text(group_id) or ""):
            raise GroupNotFound

    async def hidden_from(self, caller: Caller) -> Sequence[str]:
        """The sorted ids of the packages that are hidden from a client at its address.

        Entries for a network apply to clients without an id too.
        """
        if caller.kind is not Kind.CLIENT:
            return []
        entries = [
            entry
            for entry in await self._store.entries_for(caller.tenant_id, caller.client_id)
            if entry.applies_to(caller.client_id, caller.address)
        ]
        group_ids = sorted({entry.group_id for entry in entries if entry.group_id})
        groups = await self._store.groups_of(caller.tenant_id, group_ids) if group_ids else []
        listings: list[Entry | Group] = [*entries, *groups]
        return sorted({package_id for listing in listings for package_id in listing.package_ids})
