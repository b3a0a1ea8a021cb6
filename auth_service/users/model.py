"""Users and their errors."""

from dataclasses import dataclass
from datetime import datetime

from common.auth.roles import ADMINISTRATOR, Role
from common.errors import Conflict, NotAuthenticated, NotFound

PASSWORD_MINIMUM = 12  # characters
PASSWORD_LIMIT = 1024  # characters
USERNAME_LIMIT = 128  # characters
NO_PASSWORD = ""  # the hash of a user who signs in with an identity provider


@dataclass(frozen=True)
class User:
    """A user of a tenant, with one or more roles.

    A user of an identity provider has an `issuer` and a `subject`, which identify them, and no password.
    `is_break_glass`: signs in with a password even if the tenant allows nobody else to.
    """

    tenant_id: str
    username: str
    password_hash: str
    created_at: datetime
    roles: tuple[Role, ...] = ADMINISTRATOR
    issuer: str = ""
    subject: str = ""
    name: str = ""
    email: str = ""
    is_break_glass: bool = False


class UserNotFound(NotFound):
    code = "user_not_found"
    text = "There is no user {username!r}."


class UserExists(Conflict):
    code = "user_exists"
    text = "There is a user {username!r} already."


class LastAdministrator(Conflict):
    code = "last_user"
    text = "The last administrator who can sign in with a password keeps this role and cannot be deleted."


class RolesFromProvider(Conflict):
    code = "roles_from_provider"
    text = "The roles of {username!r} come from the company login at each sign-in."


class NoPassword(Conflict):
    code = "no_password"
    text = "{username!r} signs in with the company login and has no password."


class BadCredentials(NotAuthenticated):
    code = "bad_credentials"
    text = "The username or the password is wrong."
