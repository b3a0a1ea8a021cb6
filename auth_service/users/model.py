"""Users and their errors."""

from dataclasses import dataclass
from datetime import datetime

from common.auth.roles import ADMINISTRATOR, Role
from common.errors import Conflict, NotAuthenticated, NotFound, TooManyRequests

PASSWORD_MINIMUM = 12  # characters
PASSWORD_LIMIT = 1024  # characters
USERNAME_LIMIT = 128  # characters


@dataclass(frozen=True)
class User:
    """A user of a tenant, with one or more roles."""

    tenant_id: str
    username: str
    password_hash: str
    created_at: datetime
    roles: tuple[Role, ...] = ADMINISTRATOR


class UserNotFound(NotFound):
    code = "user_not_found"
    text = "There is no user {username!r}."


class UserExists(Conflict):
    code = "user_exists"
    text = "There is a user {username!r} already."


class LastAdministrator(Conflict):
    code = "last_user"
    text = "The last administrator of a tenant keeps this role and cannot be deleted."


class BadCredentials(NotAuthenticated):
    code = "bad_credentials"
    text = "The username or the password is wrong."


class TooManyFailures(TooManyRequests):
    code = "too_many_failures"

    def __init__(self, retry_after: int) -> None:
        detail = f"Too many failed logins; try again in {retry_after} seconds."
        super().__init__(detail, retry_after=retry_after, seconds=retry_after)
