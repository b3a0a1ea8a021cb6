"""Which packages are hidden from which clients (section 5.2)."""

from collections.abc import Sequence
from typing import Protocol
from uuid import uuid4

from client_registry.model import Clock, Entry, EntryNotFound, Group, GroupNotFound, utc_now, uuid_text
from common.auth.callers import Caller


class BlacklistStore(Protocol):
    """Where entries and groups are kept."""

    async def entries(self, tenant_id: str) -> Sequence[Entry]: ...

    async def entries_for(self, tenant_id: str, client_id: str) -> Sequence[Entry]:
        """The entries about this client and those about no client in particular."""

    async def add_entry(self, tenant_id: str, entry: Entry) -> None:
        """Raises ClientNotFound or GroupNotFound where the entry names one that is not there."""

    async def delete_entry(self, tenant_id: str, entry_id: str) -> bool: ...

    async def groups(self, tenant_id: str) -> Sequence[Group]: ...

    async def groups_of(self, tenant_id: str, group_ids: Sequence[str]) -> Sequence[Group]: ...

    async def add_group(self, tenant_id: str, group: Group) -> None:
        """Raises GroupExists for a name there is."""

    async def delete_group(self, tenant_id: str, group_id: str) -> bool:
        """Whether there was one. Raises GroupInUse while an entry names it."""


class Blacklist:
    """Keeps entries and groups, and answers what a caller does not see."""

    def __init__(self, store: BlacklistStore, now: Clock = utc_now) -> None:
        self._store = store
        self._now = now

    async def entries(self, tenant_id: str) -> Sequence[Entry]:
        """A tenant's entries, oldest first."""
        return await self._store.entries(tenant_id)

    async def add_entry(
        self,
        tenant_id: str,
        *,
        client_id: str | None,
        network: str | None,
        package_ids: Sequence[str],
        group_id: str | None,
    ) -> Entry:
        """Raises ClientNotFound or GroupNotFound where one is named that is not there."""
        entry = Entry(str(uuid4()), client_id, network, tuple(package_ids), group_id, self._now())
        await self._store.add_entry(tenant_id, entry)
        return entry

    async def delete_entry(self, tenant_id: str, entry_id: str) -> None:
        """Raises EntryNotFound."""
        known = uuid_text(entry_id)
        if known is None or not await self._store.delete_entry(tenant_id, known):
            raise EntryNotFound

    async def groups(self, tenant_id: str) -> Sequence[Group]:
        """A tenant's groups, by name."""
        return await self._store.groups(tenant_id)

    async def add_group(self, tenant_id: str, name: str, package_ids: Sequence[str]) -> Group:
        """Raises GroupExists for a name there is, letter case aside."""
        group = Group(str(uuid4()), name, tuple(package_ids), self._now())
        await self._store.add_group(tenant_id, group)
        return group

    async def delete_group(self, tenant_id: str, group_id: str) -> None:
        """Raises GroupNotFound, or GroupInUse while an entry names it."""
        known = uuid_text(group_id)
        if known is None or not await self._store.delete_group(tenant_id, known):
            raise GroupNotFound

    async def hidden_from(self, caller: Caller) -> Sequence[str]:
        """The ids of the packages that an identified client does not see from its address; sorted, none twice."""
        if not caller.client_id:
            return []
        found = await self._store.entries_for(caller.tenant_id, caller.client_id)
        entries = [entry for entry in found if entry.applies_to(caller.client_id, caller.address)]
        group_ids = sorted({entry.group_id for entry in entries if entry.group_id})
        groups = await self._store.groups_of(caller.tenant_id, group_ids) if group_ids else []
        listings: list[Entry | Group] = [*entries, *groups]
        return sorted({package_id for listing in listings for package_id in listing.package_ids})
