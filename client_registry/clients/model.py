"""Clients, their ids and their errors."""

import re
from dataclasses import dataclass
from datetime import datetime

from common.errors import Conflict, Forbidden, InvalidField, NotFound

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def uuid_text(text: str) -> str | None:
    """The UUID in its canonical spelling; None if the text is no UUID."""
    lower = text.lower()
    return lower if _UUID.fullmatch(lower) else None


@dataclass(frozen=True)
class Client:
    """A registered client. `ip`, `last_seen` and `program` are those of its last call.

    `program` is the kind of program that called: 0 other, 1 the desktop client. `ring` is "" unless one was chosen.
    """

    client_id: str
    name: str
    created_at: datetime
    token_hint: str
    ip: str | None = None
    last_seen: datetime | None = None
    program: int = 0
    enabled: bool = True
    ring: str = ""


@dataclass(frozen=True)
class ClientQuery:
    """Selects clients: `text` is part of the name, the address or the token's end; no `client_ids` select all."""

    text: str = ""
    client_ids: tuple[str, ...] = ()
    offset: int = 0
    limit: int = 50


class SlotTaken(Exception):
    """Another client got this slot at the same moment."""


class ClientNotFound(NotFound):
    code = "client_not_found"
    # The same text for a wrong id and a wrong token, so that nobody can probe for ids.
    text = "There is no client with this id and token."


class ClientUnknown(InvalidField):
    """No client has this name. `nearest` is the most similar name that exists, "" for none."""

    def __init__(self, name: str, nearest: str) -> None:
        message = f"there is no client {name!r}" + (f"; did you mean {nearest!r}?" if nearest else "")
        reason = "client_unknown_but_similar" if nearest else "client_unknown"
        super().__init__("hostname", message, reason=reason, name=name, nearest=nearest)


class ClientExists(Conflict):
    code = "client_exists"
    text = "There is a client {name!r} already."


class ClientLimitExceeded(Forbidden):
    code = "client_limit_exceeded"
    text = "The tenant may have {limit} clients, and has them."


class NameNotResolved(InvalidField):
    code = "name_not_resolved"

    def __init__(self, name: str) -> None:
        super().__init__("client_name", f"no IP address was found for {name!r}", reason=self.code, name=name)
