"""API tokens and their errors."""

from dataclasses import dataclass
from datetime import datetime

from common.auth.roles import EVERY_PACKAGE, Permission, Role
from common.errors import Conflict, NotFound

NAME_LIMIT = 64  # characters
MAX_DAYS, DEFAULT_DAYS = 366, 90  # of a token's life
MAX_OVERLAP = 168  # hours that the old secret of a rotated token still counts
NOT_FOR_TOKENS = frozenset({Permission.USERS_WRITE, Permission.TOKENS_WRITE})


@dataclass(frozen=True)
class TokenGrant:
    """The rights of a token. No `networks` allow every address."""

    name: str
    roles: tuple[Role, ...]
    packages: tuple[str, ...] = EVERY_PACKAGE
    networks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Token:
    """An API token of a tenant, without its secret. It lives `days` after its creation and after each rotation.

    `created_by` is the person who knows its secret: who created or last rotated it. This user may be deleted since.
    """

    tenant_id: str
    token_id: str
    grant: TokenGrant
    created_at: datetime
    created_by: str
    expires_at: datetime
    days: int
    last_used: datetime | None = None


class TokenExists(Conflict):
    code = "token_exists"
    text = "There is a token {name!r} already."


class TokenNotFound(NotFound):
    code = "token_not_found"
    text = "There is no token with this id."
