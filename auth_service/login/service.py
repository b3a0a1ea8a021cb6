"""From credentials to a session token and back (sections 4.1 and 5.1)."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from auth_service.audit.service import Audit
from auth_service.login.throttle import Throttle
from auth_service.model import AuditEntry, BadCredentials, TooManyFailures, User
from auth_service.users.passwords import Passwords, new_password
from common.auth.callers import Caller
from common.auth.sessions import Session
from common.errors import NotAuthenticated, Overloaded


class UserKeeper(Protocol):
    """Finds a user as they are now, and keeps another password."""

    async def find(self, tenant_id: str, username: str) -> User | None: ...

    async def set_password(self, tenant_id: str, username: str, password_hash: str) -> bool: ...


class SessionKeeper(Protocol):
    """Opens and ends sessions."""

    async def open(self, tenant_id: str, username: str) -> str: ...

    async def is_alive(self, session: Session) -> bool: ...

    async def close(self, session: Session) -> None: ...

    def close_all_around(
        self, tenant_id: str, username: str, *, keep: str = ""
    ) -> AbstractAsyncContextManager[None]: ...

    def read(self, token: str) -> Session: ...


class Login:
    """Signs administrators in and out, and writes both down; lets them choose another password."""

    def __init__(
        self, users: UserKeeper, passwords: Passwords, throttle: Throttle, sessions: SessionKeeper, audit: Audit
    ) -> None:
        self._users = users
        self._passwords = passwords
        self._throttle = throttle
        self._sessions = sessions
        self._audit = audit

    async def login(self, caller: Caller, username: str, password: str, *, request_id: str) -> str:
        """A new session's token.

        Raises:
            BadCredentials: no such user, or another password.
            TooManyFailures: too many failed before.
            Overloaded: too many sign in at once.
        """
        tenant_id = caller.tenant_id
        try:
            await self._throttle.check(tenant_id, username, caller.ip)
            user = await self._users.find(tenant_id, username)
            right = await self._compare(caller, username, user, password)
        except (TooManyFailures, Overloaded) as refused:
            if await self._throttle.is_on_record(tenant_id):
                entry = AuditEntry("login", username, caller.ip, refused.status, request_id)
                await self._audit.record(tenant_id, entry)
            raise
        # First on record, then in: where the log does not answer nobody is signed in.
        await self._audit.record(tenant_id, AuditEntry("login", username, caller.ip, 200 if right else 401, request_id))
        if not right:
            raise BadCredentials
        await self._throttle.succeeded(tenant_id, username, caller.ip)
        token = await self._sessions.open(tenant_id, username)
        if await self._users.find(tenant_id, username) != user:
            # The user was deleted, or got another password, before this login opened a session and added a place.
            await self._sessions.close(self._sessions.read(token))
            await self._throttle.forget_places(tenant_id, username)
            await self._audit.record(tenant_id, AuditEntry("login", username, caller.ip, 401, request_id))
            raise BadCredentials
        return token

    async def logout(self, caller: Caller, token: str, *, request_id: str) -> None:
        """End a token's session. A token without a living session, or another tenant's, changes nothing."""
        try:
            session = self._sessions.read(token)
        except NotAuthenticated:
            return
        if session.tenant_id != caller.tenant_id or not await self._sessions.is_alive(session):
            return
        # A session ends only with an entry. The entry's id is the session's: repeated calls leave one entry.
        entry = AuditEntry("logout", session.username, caller.ip, 200, request_id, entry_id=session.session_id)
        await self._audit.record(caller.tenant_id, entry)
        await self._sessions.close(session)

    async def change_password(self, caller: Caller, old: str, new: str) -> None:
        """Change the caller's own password and end their other sessions.

        A call that failed after the change can be repeated: the new password may take the place of the old one.

        Raises:
            BadCredentials: the old password is wrong.
            TooManyFailures: too many were wrong before.
            InvalidField: the new one cannot be a password.
        """
        tenant_id, username = caller.tenant_id, caller.username
        password = new_password("new_password", new)
        user = await self._users.find(tenant_id, username)
        if not await self._compare(caller, username, user, old, password):
            raise BadCredentials
        password_hash = await self._passwords.hash(password)
        async with self._sessions.close_all_around(tenant_id, username, keep=caller.session_id):
            is_changed = await self._users.set_password(tenant_id, username, password_hash)
        if not is_changed:
            raise BadCredentials  # Deleted meanwhile.

    async def _compare(self, caller: Caller, username: str, user: User | None, *passwords: str) -> bool:
        """Whether one of the passwords is the user's; else this counts as one failure. Raises TooManyFailures."""
        async with self._passwords.turn():
            # Guesses sent at once have all passed the check on their arrival.
            await self._throttle.check(caller.tenant_id, username, caller.ip)
            for password in passwords:
                if await self._passwords.compare(user.password_hash if user else None, password):
                    return True
            await self._throttle.failed(caller.tenant_id, username, caller.ip)
        return False
