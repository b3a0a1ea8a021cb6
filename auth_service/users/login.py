"""Sign-in and sign-out, the change of one's own password, and the metric of sign-ins."""

from collections.abc import Iterator
from contextlib import contextmanager

from auth_service.audit.service import Audit
from auth_service.audit.store import AuditEntry
from auth_service.users.service import Passwords, Users, new_password
from auth_service.users.store import BadCredentials, NoPassword, PasswordChangeRequired, User, UserNotFound
from auth_service.users.throttle_store import Throttle, TooManyFailures
from common.auth.internal_tokens import Caller
from common.auth.sessions import Session, Sessions
from common.errors import InvalidField, NotAuthenticated, Overloaded
from common.telemetry.metrics import Metrics


class Login:
    """Signs administrators in and out, with an audit entry for both, and changes their passwords."""

    def __init__(
        self, users: Users, passwords: Passwords, throttle: Throttle, sessions: Sessions, audit: Audit
    ) -> None:
        self._users = users
        self._passwords = passwords
        self._throttle = throttle
        self._sessions = sessions
        self._audit = audit

    async def login(
        self, caller: Caller, username: str, password: str, replacement: str = "", *, request_id: str
    ) -> str:
        """Open a session and return its token. The `replacement` becomes the password if it was reset.

        Raises:
            BadCredentials: there is no such user, or the password is wrong.
            PasswordChangeRequired: the password was reset, and there is no replacement.
            InvalidField: the replacement is not allowed.
            TooManyFailures: too many logins failed before.
            Overloaded: too many users sign in at once.
        """
        tenant_id = caller.tenant_id
        try:
            await self._throttle.check(tenant_id, username, caller.ip)
            user = await self._users.find(tenant_id, username)
            is_allowed = await self._users.allows_password(tenant_id, user)
            is_right = await self._compare(caller, username, user if is_allowed else None, password)
        except (TooManyFailures, Overloaded) as refused:
            if await self._throttle.should_record_refusal(tenant_id):
                await self._record(caller, username, refused.status, request_id)
            raise
        is_temporary = is_right and user is not None and user.must_change_password
        if is_temporary and replacement and new_password("new_password", replacement) == password:
            raise InvalidField("new_password", "must be another password", reason="same_password")
        is_refused = is_temporary and not replacement
        # The entry comes before the session: without the audit log nobody is signed in.
        await self._record(caller, username, 401 if not is_right else 403 if is_refused else 200, request_id)
        if not is_right:
            raise BadCredentials
        if is_refused:
            raise PasswordChangeRequired
        if is_temporary:
            entry = AuditEntry("change_password", username, caller.ip, 200, request_id)
            await self._audit.record(tenant_id, entry)
            await self._users.reset_password(tenant_id, username, replacement)
            user = await self._users.find(tenant_id, username)
        await self._throttle.count_success(tenant_id, username, caller.ip)
        return await self._open(caller, username, user, request_id)

    async def open_session(self, caller: Caller, user: User, *, request_id: str) -> str:
        """Open a session for a user whom an identity provider vouches for, and return its token.

        Raises BadCredentials: the user was deleted meanwhile.
        """
        await self._record(caller, user.username, 200, request_id)
        return await self._open(caller, user.username, user, request_id)

    async def _open(self, caller: Caller, username: str, user: User | None, request_id: str) -> str:
        tenant_id = caller.tenant_id
        token = await self._sessions.open(tenant_id, username)
        found = await self._users.find(tenant_id, username)
        has_company_login = found is not None and found.issuer != ""
        if found != user or not (has_company_login or await self._users.allows_password(tenant_id, found)):
            # The user was deleted, got another password, or may not use one any more, before this login opened a
            # session and added a network.
            await self._sessions.close(self._sessions.parse_token(token))
            await self._throttle.forget_networks(tenant_id, username)
            await self._record(caller, username, 401, request_id)
            raise BadCredentials
        await self._users.record_sign_in(tenant_id, username)
        return token

    async def logout(self, caller: Caller, token: str, *, request_id: str) -> None:
        """End a token's session. A token without a living session, or another tenant's, changes nothing."""
        try:
            session = self._sessions.parse_token(token)
        except NotAuthenticated:
            return
        if session.tenant_id == caller.tenant_id and await self._sessions.is_alive(session):
            await self.end(caller, session, request_id=request_id)

    async def end(self, caller: Caller, session: Session, *, request_id: str) -> None:
        """End a session."""
        # A session ends only with an entry. The entry's id is the session's: repeated calls leave one entry.
        entry = AuditEntry("logout", session.username, caller.ip, 200, request_id, entry_id=session.session_id)
        await self._audit.record(caller.tenant_id, entry)
        await self._sessions.close(session)

    async def end_all(self, caller: Caller, username: str, *, request_id: str) -> None:
        """End all sessions of a user."""
        await self._audit.record(caller.tenant_id, AuditEntry("logout", username, caller.ip, 200, request_id))
        await self._sessions.close_all(caller.tenant_id, username)

    async def change_password(self, caller: Caller, old: str, new: str) -> None:
        """Change the caller's own password and end their other sessions.

        A call that failed after the change can be repeated: the new password is accepted as the old one.

        Raises:
            BadCredentials: the old password is wrong.
            NoPassword: the user signs in with an identity provider.
            TooManyFailures: too many were wrong before.
            InvalidField: the new one is not allowed.
        """
        tenant_id, username = caller.tenant_id, caller.username
        password = new_password("new_password", new)
        user = await self._users.find(tenant_id, username)
        if user is not None and user.issuer:
            raise NoPassword(username=username)
        if not await self._compare(caller, username, user, old, password):
            raise BadCredentials
        try:
            await self._users.reset_password(tenant_id, username, password, keep=caller.session_id)
        except UserNotFound:  # The user was deleted meanwhile.
            raise BadCredentials from None

    async def _compare(self, caller: Caller, username: str, user: User | None, *passwords: str) -> bool:
        """Whether one of the passwords is right; otherwise count one failure. Raises TooManyFailures."""
        async with self._passwords.slot():
            # Attempts that were sent at once all passed the first check.
            await self._throttle.check(caller.tenant_id, username, caller.ip)
            for password in passwords:
                if await self._passwords.compare(user.password_hash or None if user else None, password):
                    return True
            await self._throttle.count_failure(caller.tenant_id, username, caller.ip)
        return False

    async def _record(self, caller: Caller, username: str, status: int, request_id: str) -> None:
        await self._audit.record(caller.tenant_id, AuditEntry("login", username, caller.ip, status, request_id))


REFUSALS = {BadCredentials: "refused", TooManyFailures: "throttled"}


class LoginMetrics:
    """Counts logins by their outcome."""

    def __init__(self, metrics: Metrics) -> None:
        help_text = "Sign-ins: throttled are those that were not tried, after too many failures."
        counter = metrics.counter("pkgrepo_logins_total", help_text, "outcome")
        self._counters = {outcome: counter.labels(outcome) for outcome in ("succeeded", *REFUSALS.values())}

    @contextmanager
    def count(self) -> Iterator[None]:
        """Count the login in the block."""
        try:
            yield
        except (BadCredentials, TooManyFailures) as error:
            self._counters[REFUSALS[type(error)]].inc()
            raise
        self._counters["succeeded"].inc()
