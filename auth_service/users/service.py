"""The users who administer a tenant."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from auth_service.login.throttle import Throttle
from auth_service.users.model import USERNAME_LIMIT, LastUser, User, UserNotFound
from auth_service.users.passwords import Passwords, new_password
from auth_service.users.store import MongoUserStore
from common.auth.sessions import Sessions
from common.errors import InvalidField

# The path of `delete_user` ends with the name, and no path may end with `.` or `..`.
_USERNAME = re.compile(rf"(?!\.{{1,2}}$)[A-Za-z0-9._@+-]{{1,{USERNAME_LIMIT}}}")


def parse_username(text: str) -> str:
    """The name of a new user. Raises InvalidField."""
    if not _USERNAME.fullmatch(text):
        message = f"must be 1 to {USERNAME_LIMIT} of A-Z, a-z, 0-9 and . _ @ + -, and neither . nor .."
        raise InvalidField("username", message, reason="not_a_username", most=USERNAME_LIMIT)
    return text


class Users:
    """Creates, lists and deletes users, and resets their passwords."""

    def __init__(self, store: MongoUserStore, passwords: Passwords, sessions: Sessions, throttle: Throttle) -> None:
        self._store = store
        self._passwords = passwords
        self._sessions = sessions
        self._throttle = throttle

    async def create(self, tenant_id: str, username: str, password: str) -> None:
        """Add a user. Raises InvalidField for an invalid name or password, UserExists for a duplicate name."""
        name = parse_username(username)
        password_hash = await self._passwords.hash(new_password("password", password))
        await self._store.add(User(tenant_id, name, password_hash, datetime.now(UTC)))

    async def find(self, tenant_id: str, username: str) -> User | None:
        return await self._store.find(tenant_id, username)

    async def list(self, tenant_id: str) -> Sequence[User]:
        """A tenant's users, by name."""
        return await self._store.list(tenant_id)

    async def delete(self, tenant_id: str, username: str) -> None:
        """Delete a user, their sessions and their known networks.

        A repeated call deletes the sessions and networks that an earlier, failed call left.

        Raises:
            UserNotFound: the user does not exist.
            LastUser: the tenant has no other user. The user's sessions go on.
        """
        if [user.username for user in await self._store.list(tenant_id)] == [username]:
            raise LastUser
        async with self._sessions.close_all_around(tenant_id, username):
            is_deleted = await self._store.delete(tenant_id, username)
        await self._throttle.forget_networks(tenant_id, username)
        if not is_deleted:
            raise UserNotFound(username=username)

    async def reset_password(self, tenant_id: str, username: str, new: str, *, keep: str = "") -> None:
        """Set another password and end all sessions of the user but `keep`. Raises UserNotFound or InvalidField."""
        password_hash = await self._passwords.hash(new_password("password", new))
        async with self._sessions.close_all_around(tenant_id, username, keep=keep):
            is_changed = await self._store.set_password(tenant_id, username, password_hash)
        if not is_changed:
            raise UserNotFound(username=username)
