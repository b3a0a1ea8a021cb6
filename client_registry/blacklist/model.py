"""Blacklist entries, groups of packages, and their errors."""

from dataclasses import dataclass
from datetime import datetime

from common.errors import Conflict, NotFound
from common.tenants import Address, contains


@dataclass(frozen=True)
class Entry:
    """Hides packages, listed or in a group, from callers that match `client_id` and `network`; None matches all."""

    entry_id: str
    client_id: str | None
    network: str | None
    package_ids: tuple[str, ...]
    group_id: str | None
    created_at: datetime

    def applies_to(self, client_id: str, address: Address) -> bool:
        return self.client_id in {None, client_id} and (self.network is None or contains((self.network,), address))


@dataclass(frozen=True)
class Group:
    """A named list of packages that entries share."""

    group_id: str
    name: str
    package_ids: tuple[str, ...]
    created_at: datetime


class EntryNotFound(NotFound):
    code = "entry_not_found"
    text = "There is no blacklist entry with this id."


class GroupNotFound(NotFound):
    code = "group_not_found"
    text = "There is no blacklist group with this id."


class GroupExists(Conflict):
    code = "group_exists"
    text = "There is a blacklist group {name!r} already."


class GroupInUse(Conflict):
    code = "group_in_use"
    text = "Blacklist entries use this group; delete them first."
