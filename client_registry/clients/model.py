"""Clients and their errors."""

from dataclasses import dataclass
from datetime import datetime

from common.errors import Conflict, Forbidden, InvalidField, NotFound


@dataclass(frozen=True)
class Client:
    """A registered client. `ip`, `last_seen` and `program` are those of its last call.

    `program` is the kind of program that called: 0 other, 1 the desktop client.
    """

    client_id: str
    name: str
    created_at: datetime
    token_hint: str
    ip: str | None = None
    last_seen: datetime | None = None
    program: int = 0
    enabled: bool = True


class ClientNotFound(NotFound):
    code = "client_not_found"

    def __init__(self) -> None:
        # The same text for a wrong id and a wrong token, so that nobody can probe for ids.
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
