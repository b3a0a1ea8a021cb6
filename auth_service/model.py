"""Users, audit entries, and what can go wrong with them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from common.errors import Conflict, InvalidField, NotAuthenticated, NotFound, TooManyRequests, Unavailable

PASSWORD_MINIMUM = 12  # characters
PASSWORD_LIMIT = 1024  # characters
USERNAME_LIMIT = 128  # characters


class TenantNotFound(NotFound):
    code = "tenant_not_found"

    def __init__(self, tenant_id: str) -> None:
        super().__init__(f"There is no tenant {tenant_id!r}.")


class TenantExists(Conflict):
    code = "tenant_exists"

    def __init__(self, tenant_id: str) -> None:
        super().__init__(f"There is a tenant {tenant_id!r} already.")


class UserNotFound(NotFound):
    code = "user_not_found"

    def __init__(self, username: str) -> None:
        super().__init__(f"There is no user {username!r}.", username=username)


class UserExists(Conflict):
    code = "user_exists"

    def __init__(self, username: str) -> None:
        super().__init__(f"There is a user {username!r} already.")


class LastUser(Conflict):
    code = "last_user"

    def __init__(self) -> None:
        super().__init__("The last user of a tenant cannot be deleted; nobody could sign in any more.")


class BadCredentials(NotAuthenticated):
    code = "bad_credentials"

    def __init__(self) -> None:
        super().__init__("The username or the password is wrong.")


class TooManyFailures(TooManyRequests):
    code = "too_many_failures"

    def __init__(self, retry_after: int) -> None:
        detail = f"Too many failed logins; try again in {retry_after} seconds."
        super().__init__(detail, retry_after=retry_after, seconds=retry_after)


class WouldLockOutCaller(InvalidField):
    code = "shuts_out_caller"

    def __init__(self, ip: str) -> None:
        super().__init__("allowed_networks", f"this list would shut you out: {ip} is not on it")


@dataclass(frozen=True)
class User:
    """Someone who administers a tenant."""

    tenant_id: str
    username: str
    password_hash: str
    created_at: datetime


class AuditBusy(Unavailable):
    """So many append to one log at once that this entry did not get its turn; nothing of it was kept."""

    def __init__(self) -> None:
        super().__init__("The audit log is busy; try again soon.")


@dataclass(frozen=True)
class AuditEntry:
    """One administrator's or operator's write or sign-in.

    `target` holds short names and ids, `changes` what a setting was before and is after: never a secret.
    `entry_id` makes telling it twice the same as telling it once.
    """

    operation: str
    user: str
    ip: str
    status: int
    request_id: str
    target: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    entry_id: str = field(default_factory=lambda: uuid4().hex)
