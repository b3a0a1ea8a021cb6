"""A login while its user is deleted or gets another password."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from auth_service.audit.service import Audit
from auth_service.audit.store import AuditEntry
from auth_service.users.login import Login
from auth_service.users.service import Passwords, Users
from auth_service.users.store import BadCredentials, User
from auth_service.users.throttle_store import RedisFailureCounts, RedisKnownNetworks, Throttle, TooManyFailures
from common.auth.sessions import Session, Sessions
from common.errors import Overloaded
from tests.support.factories import make_caller

PASSWORD = "a password for tests"


class ChangingUsers(Users):
    """Returns another user at each lookup, like a concurrent change."""

    def __init__(self, *users: User | None) -> None:
        self._found = iter(users)

    async def find(self, tenant_id: str, username: str) -> User | None:
        return next(self._found)

    async def allows_password(self, tenant_id: str, user: User | None) -> bool:
        return True

    async def record_sign_in(self, tenant_id: str, username: str) -> None:
        pass


class OpenSessions(Sessions):
    """Stores the open sessions in memory; a token is the session's id."""

    def __init__(self) -> None:
        self.open_ones: dict[str, Session] = {}

    async def open(self, tenant_id: str, username: str) -> str:
        session = Session(tenant_id, username, f"session-{len(self.open_ones)}", 0)
        self.open_ones[session.session_id] = session
        return session.session_id

    async def is_alive(self, session: Session) -> bool:
        return session.session_id in self.open_ones

    async def close(self, session: Session) -> None:
        del self.open_ones[session.session_id]

    def parse_token(self, token: str) -> Session:
        return self.open_ones[token]


@dataclass
class CountedFailures(RedisFailureCounts):
    """Allows `free` attempts and refuses the rest."""

    free: int = 100
    counted: int = 0

    async def count(self, name: str, window: int) -> int:
        self.counted += not name.startswith("refused:")
        return self.counted

    async def wait(self, limits: Mapping[str, int]) -> int:
        self.free -= 1
        return 0 if self.free >= 0 else 60

    async def forget(self, name: str) -> None:
        self.counted = 0


class NoKnownNetworks(RedisKnownNetworks):
    """Knows no network of any user."""

    def __init__(self) -> None: ...

    async def add(self, tenant_id: str, username: str, network: str) -> None: ...

    async def contains(self, tenant_id: str, username: str, network: str) -> bool:
        return False

    async def forget(self, tenant_id: str, username: str) -> None: ...


class RecordedAudit(Audit):
    """Records the operation and the status of each entry."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, int]] = []

    async def record(self, tenant_id: str, entry: AuditEntry) -> None:
        self.recorded.append((entry.operation, entry.status))


@pytest.fixture
def sessions() -> OpenSessions:
    return OpenSessions()


@pytest.fixture
async def user() -> User:
    return User("acme", "ada", await Passwords().hash(PASSWORD), datetime.now(UTC))


def make_login(sessions: OpenSessions, *users: User | None, failures: CountedFailures | None = None) -> Login:
    throttle = Throttle(failures or CountedFailures(), NoKnownNetworks())
    return Login(ChangingUsers(*users), Passwords(), throttle, sessions, RecordedAudit())


@pytest.mark.parametrize("change", ["none", "deleted", "another password"])
async def test_only_a_user_who_stays_unchanged_is_signed_in(sessions: OpenSessions, user: User, change: str) -> None:
    later = None if change == "deleted" else user if change == "none" else replace(user, password_hash="another")
    login = make_login(sessions, user, later)
    if change == "none":
        assert await login.login(make_caller(), "ada", PASSWORD, request_id="") in sessions.open_ones
        return
    with pytest.raises(BadCredentials):
        await login.login(make_caller(), "ada", PASSWORD, request_id="")
    assert sessions.open_ones == {}


async def test_too_many_failures_meanwhile_end_a_waiting_login(sessions: OpenSessions, user: User) -> None:
    failures = CountedFailures(free=1)
    with pytest.raises(TooManyFailures) as error:
        await make_login(sessions, user, failures=failures).login(make_caller(), "ada", "wrong", request_id="")

    assert (error.value.retry_after, failures.counted) == (60, 0)


async def test_a_login_that_times_out_in_the_queue_is_recorded(
    sessions: OpenSessions, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("auth_service.users.service.AT_ONCE", 0)
    monkeypatch.setattr("auth_service.users.service.TIMEOUT", 0.01)
    audit = RecordedAudit()
    login = Login(ChangingUsers(user), Passwords(), Throttle(CountedFailures(), NoKnownNetworks()), sessions, audit)
    with pytest.raises(Overloaded):
        await login.login(make_caller(), "ada", PASSWORD, request_id="")

    assert audit.recorded == [("login", 503)]


@pytest.mark.parametrize("is_known", [True, False], ids=["wrong password", "unknown user"])
async def test_a_failure_counts_for_user_address_and_both_together(
    sessions: OpenSessions, user: User, is_known: bool
) -> None:
    failures = CountedFailures()
    with pytest.raises(BadCredentials):
        await make_login(sessions, user if is_known else None, failures=failures).login(
            make_caller(), "ada", "wrong", request_id=""
        )

    assert (failures.counted, sessions.open_ones) == (3, {})
