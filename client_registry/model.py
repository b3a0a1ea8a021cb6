"""Clients, the blacklist and releases, and what can go wrong with them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from common.errors import Conflict, Forbidden, InvalidField, NotFound
from common.tenants import Address, contains

Clock = Callable[[], datetime]
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ClientNotFound(NotFound):
    code = "client_not_found"

    def __init__(self) -> None:
        # The same words for a wrong id and a wrong token: nobody learns which clients there are.
        super().__init__("There is no client with this id and token.")


class ClientExists(Conflict):
    code = "client_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is a client {name!r} already.")


class ClientLimitExceeded(Forbidden):
    code = "client_limit_exceeded"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The tenant may have {limit} clients, and has them.")


class NameNotResolved(InvalidField):
    code = "name_not_resolved"

    def __init__(self, name: str) -> None:
        super().__init__("client_name", f"no IP address was found for {name!r}", reason=self.code, name=name)


class EntryNotFound(NotFound):
    code = "entry_not_found"

    def __init__(self) -> None:
        super().__init__("There is no blacklist entry with this id.")


class GroupNotFound(NotFound):
    code = "group_not_found"

    def __init__(self) -> None:
        super().__init__("There is no blacklist group with this id.")


class GroupExists(Conflict):
    code = "group_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is a blacklist group {name!r} already.")


class GroupInUse(Conflict):
    code = "group_in_use"

    def __init__(self) -> None:
        super().__init__("Blacklist entries use this group; delete them first.")


class ReleaseExists(Conflict):
    code = "release_exists"

    def __init__(self, version: str) -> None:
        super().__init__(f"Version {version} of the client was published already.")


@dataclass(frozen=True)
class Client:
    """A registered client. `ip`, `last_seen` and `program` are those of its last call; `program` tells what kind of
    program called (decision of the interface: 0 other, 1 the desktop client)."""

    client_id: str
    name: str
    created_at: datetime
    token_hint: str
    ip: str | None = None
    last_seen: datetime | None = None
    program: int = 0
    enabled: bool = True


@dataclass(frozen=True)
class Entry:
    """Hides packages, listed or in a group, from the callers that each part of it matches; no part matches all."""

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


@dataclass(frozen=True)
class Installer:
    """The file of a release. `size` is in bytes, `sha256` hexadecimal."""

    server_filename: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Release:
    """A published version of the client program, four numeric parts."""

    uid: str
    version: str
    published_at: datetime
    installer: Installer | None = None


def utc_now() -> datetime:
    return datetime.now(UTC)


def uuid_text(text: str) -> str | None:
    """The UUID in its canonical spelling, None where the text is no UUID."""
    lower = text.lower()
    return lower if _UUID.fullmatch(lower) else None
