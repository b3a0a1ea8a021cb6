"""The users of a tenant with their roles, and the hashes of their passwords."""

import asyncio
import os
import re
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError

from auth_service.users.store import (
    PASSWORD_LIMIT,
    PASSWORD_MINIMUM,
    USERNAME_LIMIT,
    LastAdministrator,
    MongoUserStore,
    NoPassword,
    RolesFromProvider,
    User,
    UserNotFound,
)
from auth_service.users.throttle_store import Throttle
from common.auth.roles import ADMINISTRATOR, Role
from common.auth.sessions import Sessions
from common.concurrency.limits import ConcurrencyLimit
from common.errors import InvalidField
from common.http.forms import clean
from common.mongo import Document
from common.redis import TenantVersions
from common.telemetry import log

AT_ONCE = 4  # hashes; each holds 19 MiB and a core for about 25 ms
NICENESS = 10  # of the hashing threads, above that of the process: with few cores all other work would wait for them
TIMEOUT = 10.0  # seconds to wait for a slot; the gateway waits longer
COSTS = ("memory_cost", "time_cost", "parallelism", "hash_len", "salt_len")


class Passwords:
    """Hashes and compares passwords, with the parameters that OWASP recommends for argon2id."""

    def __init__(self) -> None:
        self._hasher = password_hasher()
        self._slots = ConcurrencyLimit(AT_ONCE)
        self._threads = ThreadPoolExecutor(thread_name_prefix="passwords", initializer=_lower_priority)
        # Compared for unknown users, so that the response takes as long as for known ones.
        self._nobody = self._hasher.hash("nobody has this password")
        self._parameters = extract_parameters(self._nobody)

    async def hash(self, password: str) -> str:
        async with self.slot():
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._hasher.hash, password)

    def slot(self) -> AbstractAsyncContextManager[None]:
        """Hold a slot for `compare` within the block. Raises Overloaded."""
        return self._slots.acquire(TIMEOUT)

    async def compare(self, password_hash: str | None, password: str) -> bool:
        """Whether the password is right. The caller must hold a `slot`.

        An unknown user (None) and a hash that costs more than ours take as long and give False.
        """
        is_known = password_hash is not None and self._is_affordable(password_hash)
        known = password_hash if password_hash is not None and is_known else self._nobody
        is_right = await asyncio.get_running_loop().run_in_executor(self._threads, self._matches, known, password)
        return is_right and is_known

    def _is_affordable(self, password_hash: str) -> bool:
        try:
            parameters = extract_parameters(password_hash)
        except InvalidHashError:
            log.error("password_hash_refused", reason="not an argon2 hash")
            return False
        if any(getattr(parameters, cost) > getattr(self._parameters, cost) for cost in COSTS):
            log.error("password_hash_refused", reason="costs more than ours")
            return False
        return True

    def _matches(self, password_hash: str, password: str) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except (VerificationError, ValueError):  # A hash of an unknown kind or encoding is a ValueError.
            return False


def password_hasher() -> PasswordHasher:
    """The hasher of new passwords. Its costs may only grow: `compare` refuses hashes that cost more."""
    return PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)


def _lower_priority() -> None:
    """Lower the priority of this thread. Only Linux has priorities of threads."""
    if sys.platform == "linux":
        with suppress(OSError):  # A sandbox may refuse it.
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)


def new_password(field: str, value: str) -> str:
    """A new password of 12 to 1,024 characters. Raises InvalidField, also for control characters."""
    password = clean(field, value, limit=PASSWORD_LIMIT)
    if len(password) < PASSWORD_MINIMUM:
        message = f"must have at least {PASSWORD_MINIMUM} characters"
        raise InvalidField(field, message, reason="too_short", least=PASSWORD_MINIMUM)
    return password


# The path of `delete_user` ends with the name, and no path may end with `.` or `..`.
_USERNAME = re.compile(rf"(?!\.{{1,2}}$)[A-Za-z0-9._@+-]{{1,{USERNAME_LIMIT}}}")


def parse_username(text: str) -> str:
    """The name of a new user. Raises InvalidField."""
    if not _USERNAME.fullmatch(text):
        message = f"must be 1 to {USERNAME_LIMIT} of A-Z, a-z, 0-9 and . _ @ + -, and neither . nor .."
        raise InvalidField("username", message, reason="not_a_username", most=USERNAME_LIMIT)
    return text


class Users:
    """Creates, lists, edits and deletes users, and resets their passwords. Gateways cache the roles of users."""

    def __init__(
        self,
        store: MongoUserStore,
        passwords: Passwords,
        sessions: Sessions,
        throttle: Throttle,
        versions: TenantVersions,
    ) -> None:
        self._store = store
        self._passwords = passwords
        self._sessions = sessions
        self._throttle = throttle
        self._versions = versions

    async def create(
        self,
        tenant_id: str,
        username: str,
        password: str,
        roles: tuple[Role, ...] = ADMINISTRATOR,
        *,
        is_break_glass: bool = False,
    ) -> None:
        """Add a user. Raises InvalidField for an invalid name or password, UserExists for a duplicate name."""
        name = parse_username(username)
        password_hash = await self._passwords.hash(new_password("password", password))
        async with self._versions.invalidate_access_during(tenant_id):
            user = User(tenant_id, name, password_hash, datetime.now(UTC), roles, is_break_glass=is_break_glass)
            await self._store.add(user)

    async def find(self, tenant_id: str, username: str) -> User | None:
        return await self._store.find(tenant_id, username)

    async def find_subject(self, tenant_id: str, issuer: str, subject: str) -> User | None:
        """The user of an identity provider."""
        return await self._store.find_subject(tenant_id, issuer, subject)

    async def list(self, tenant_id: str) -> Sequence[User]:
        """A tenant's users, by name."""
        return await self._store.list(tenant_id)

    async def edit(
        self, tenant_id: str, username: str, roles: tuple[Role, ...] = (), *, is_break_glass: bool | None = None
    ) -> User:
        """Give a user other roles, open sessions included, or change `is_break_glass`; the user before.

        Ends the sessions of a user who may not sign in any more.

        Raises UserNotFound, RolesFromProvider, or LastAdministrator if the tenant has no other one.
        """
        changes: Document = {"roles": list(roles)} if roles else {}
        if is_break_glass is not None:
            changes["is_break_glass"] = is_break_glass
        user = await self._store.find(tenant_id, username)
        if user is not None and user.issuer:
            raise RolesFromProvider(username=username)
        async with self._versions.invalidate_access_during(tenant_id):
            before = await self._store.change(tenant_id, username, changes)
        if before is None:
            raise UserNotFound(username=username)
        if is_break_glass is False and not await self._store.allows_passwords(tenant_id):
            await self._sessions.close_all(tenant_id, username)
        return before

    async def sign_in(self, identity: User) -> User:
        """Add or update the user of an identity provider as its token describes them; returns the stored user."""
        known = await self._store.find_subject(identity.tenant_id, identity.issuer, identity.subject)
        said = (identity.roles, identity.name, identity.email)
        if known is not None and (known.roles, known.name, known.email) == said:
            return known
        async with self._versions.invalidate_access_during(identity.tenant_id):
            return await self._store.put_subject(identity)

    async def allows_password(self, tenant_id: str, user: User | None) -> bool:
        """Whether the tenant allows a user to sign in with a password."""
        allowed = await self._store.allows_passwords(tenant_id)  # also for an unknown user, who takes as long
        return user is not None and not user.issuer and (allowed or user.is_break_glass)

    async def set_login(self, tenant_id: str, login_name: str, *, with_passwords: bool) -> None:
        """Set the name of the company login, and who signs in with a password: everybody or break-glass users.

        Raises LastAdministrator if no administrator could sign in with a password any more.
        """
        async with self._versions.invalidate_access_during(tenant_id):
            await self._store.set_login(tenant_id, login_name, with_passwords=with_passwords)

    async def end_other_sessions(self, tenant_id: str, issuer: str, *, with_passwords: bool) -> None:
        """End the sessions of users who sign in neither with this provider nor with a password."""
        for user in await self._store.list(tenant_id):
            if user.issuer != issuer if user.issuer else not (with_passwords or user.is_break_glass):
                await self._sessions.close_all(tenant_id, user.username)

    async def delete(self, tenant_id: str, username: str) -> None:
        """Delete a user, their sessions and their known networks.

        A repeated call deletes the sessions and networks that an earlier, failed call left.

        Raises:
            UserNotFound: the user does not exist.
            LastAdministrator: the tenant has no other administrator. The user's sessions go on.
        """
        if await self._store.is_last_administrator(tenant_id, username):
            raise LastAdministrator
        async with (
            self._versions.invalidate_access_during(tenant_id),
            self._sessions.close_all_around(tenant_id, username),
        ):
            is_deleted = await self._store.delete(tenant_id, username)
        await self._throttle.forget_networks(tenant_id, username)
        if not is_deleted:
            raise UserNotFound(username=username)

    async def record_sign_in(self, tenant_id: str, username: str) -> None:
        """Store that the user has signed in now."""
        await self._store.record_sign_in(tenant_id, username, datetime.now(UTC))

    async def reset_password(
        self, tenant_id: str, username: str, new: str, *, keep: str = "", must_change: bool = False
    ) -> None:
        """Set another password and end all sessions of the user but `keep`. With `must_change` it is for one sign-in.

        Raises UserNotFound, NoPassword or InvalidField.
        """
        password_hash = await self._passwords.hash(new_password("password", new))
        async with self._sessions.close_all_around(tenant_id, username, keep=keep):
            is_changed = await self._store.set_password(tenant_id, username, password_hash, must_change=must_change)
        if not is_changed:
            is_known = await self.find(tenant_id, username)
            raise NoPassword(username=username) if is_known else UserNotFound(username=username)
