"""Administrators' sessions: a JWT names the user, Redis decides whether the session is alive.

A session ends `lifetime` seconds after the login or `idle` seconds after its last use, by the clock of Redis. Without
Redis every session is refused: a signature alone is never enough.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import jwt

from common.auth.signing import ALGORITHM, Keys, TokenVerifier
from common.concurrency.batching import Batcher
from common.errors import NotAuthenticated
from common.redis import Redis, ScriptRunner, access_version_key, tenant_version_key

# KEYS: the session, the user's sessions by their ends. ARGV: session id, lifetime, idle (seconds).
OPEN = """
local now = tonumber(redis.call('TIME')[1])
redis.call('SET', KEYS[1], now + ARGV[2], 'EX', math.min(ARGV[2], ARGV[3]))
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
redis.call('EXPIREAT', KEYS[2], redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2])
return 1
"""

# KEYS: sessions, then tenant versions. ARGV: idle (seconds), the number of sessions.
# Returns 1 for each living session, after renewing its idle time, else 0; then the tenant versions.
# A version is prefixed with Redis's run_id: a restarted Redis may have lost its last writes, so versions that gateways
# saw before must not match again. The version of a tenant that is being changed is "".
TOUCH = """
local now = tonumber(redis.call('TIME')[1])
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local answers = {}
for index, key in ipairs(KEYS) do
  local value = redis.call('GET', key)
  if index > tonumber(ARGV[2]) then
    answers[index] = value == '' and '' or run .. (value or '')
  else
    local left = value and tonumber(value) - now or 0
    if left > 0 then redis.call('EXPIRE', key, math.min(left, ARGV[1])) elseif value then redis.call('DEL', key) end
    answers[index] = left > 0 and 1 or 0
  end
end
return answers
"""

# KEYS: the user's sessions. ARGV: the prefix of session keys, the session id to keep ("" keeps none).
CLOSE_ALL = """
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if id ~= ARGV[2] then
    redis.call('DEL', ARGV[1] .. id)
    redis.call('ZREM', KEYS[1], id)
  end
end
return 1
"""


AUDIENCE = "session"


@dataclass(frozen=True)
class Session:
    """One sign-in of a user of a tenant. It ends at `ends_at` at the latest, in seconds since 1970."""

    tenant_id: str
    username: str
    session_id: str
    ends_at: int


@dataclass(frozen=True)
class SessionCheck:
    """The answer of Redis at one moment: the tenant's versions, and the living session of a token, if any.

    A version is None while what it covers is being changed, or when Redis did not answer. Then nothing may be cached by
    it. `is_changing`: Redis answered, and the settings, users or tokens are being changed.
    """

    tenant_version: str | None
    session: Session | None = None
    access_version: str | None = None
    is_changing: bool = False


class Sessions:
    """Opens, checks and ends sessions. Every method raises RedisError if Redis does not answer."""

    def __init__(self, redis: "Redis", *, keys: Keys, lifetime: int, idle: int) -> None:
        """`keys` sign the tokens; `lifetime` and `idle` are seconds."""
        self._redis = redis
        self._keys = keys
        self._lifetime = lifetime
        self._idle = idle
        self._tokens = TokenVerifier(keys, audience=AUDIENCE, required=["jti", "sub"], parse=_session)
        self._batcher = Batcher(self._touch_all)
        self._touch_script = ScriptRunner(redis, TOUCH)
        self._open_script: Any = redis.register_script(OPEN)
        self._close_all_script: Any = redis.register_script(CLOSE_ALL)

    async def open(self, tenant_id: str, username: str) -> str:
        """Open a session and return its token."""
        now = int(time.time())
        session = Session(tenant_id, username, uuid4().hex, now + self._lifetime)
        await self._open_script(
            keys=[_session_key(session), _user_key(tenant_id, username)],
            args=[session.session_id, self._lifetime, self._idle],
        )
        claims = {"tenant": tenant_id, "sub": username, "jti": session.session_id}
        dates = {"iat": now, "exp": session.ends_at}
        return jwt.encode({"aud": AUDIENCE, **claims, **dates}, self._keys.signing, algorithm=ALGORITHM)

    async def check(self, tenant_id: str, token: str) -> Session:
        """The session of a token; renews its idle time.

        Raises NotAuthenticated: the token is forged, another tenant's, expired, idle for too long or logged out.
        """
        session = self.parse_token(token)
        if session.tenant_id != tenant_id or not (await self._batcher.submit((_session_key(session), "", "")))[0]:
            raise _not_valid()
        return session

    async def validate(self, tenant_id: str, token: str) -> Session:
        """The session of a token, without renewing its idle time. Raises NotAuthenticated as `check` does."""
        session = self.parse_token(token)
        if session.tenant_id != tenant_id or not await self.is_alive(session):
            raise _not_valid()
        return session

    async def is_alive(self, session: Session) -> bool:
        """Whether a session is alive; does not renew its idle time."""
        return time.time() < session.ends_at and bool(await self._redis.exists(_session_key(session)))

    async def touch(self, tenant_id: str, token: str = "") -> SessionCheck:
        """A tenant's versions, and the session of a token after renewing its idle time; None if `check` would raise."""
        try:
            session = self.parse_token(token) if token else None
        except NotAuthenticated:
            session = None
        if session is not None and session.tenant_id != tenant_id:
            session = None
        session_key = _session_key(session) if session else ""
        keys = session_key, tenant_version_key(tenant_id), access_version_key(tenant_id)
        is_alive, version, access = await self._batcher.submit(keys)
        return SessionCheck(version or None, session if is_alive else None, access or None, is_changing=not access)

    def parse_token(self, token: str) -> Session:
        """The session that a token names, alive or not. Raises NotAuthenticated: it is forged or past its lifetime."""
        try:
            return self._tokens.verify(token)
        except (jwt.InvalidTokenError, UnicodeError, KeyError, ValueError):
            raise _not_valid() from None

    async def _touch_all(self, requests: Sequence[tuple[str, str, str]]) -> Sequence[tuple[bool, str, str]]:
        """For the keys of a session and of two versions, "" for none: is it alive, and the versions. One command."""
        sessions = list({session for session, *_ in requests if session})
        versions = list({version for _, *both in requests for version in both if version})
        keys = [*sessions, *versions]
        answers = await self._touch_script.run(len(keys), *keys, self._idle, len(sessions))
        by_key = dict(zip(keys, answers, strict=True))
        return [
            (by_key.get(session) == 1, by_key.get(one, ""), by_key.get(other, "")) for session, one, other in requests
        ]

    async def count(self) -> int:
        """The number of sessions. Scans all keys, a thousand at a time: for metrics only."""
        return len({key async for key in self._redis.scan_iter(match="session:{*", count=1000)})

    async def close(self, session: Session) -> None:
        """End a session; safe to repeat."""
        await self._redis.delete(_session_key(session))
        await self._redis.zrem(_user_key(session.tenant_id, session.username), session.session_id)

    async def close_all(self, tenant_id: str, username: str, *, keep: str = "") -> None:
        """End every session of a user but the one with the id `keep`."""
        prefix = _session_key(Session(tenant_id, username, "", 0))
        await self._close_all_script(keys=[_user_key(tenant_id, username)], args=[prefix, keep])

    @asynccontextmanager
    async def close_all_around(self, tenant_id: str, username: str, *, keep: str = "") -> AsyncIterator[None]:
        """End every session of a user but `keep`, before and after the change in the block.

        Without Redis, the change does not begin. The second time ends the sessions of sign-ins that finished before the
        change. If only the second time fails, a repeated call ends them.
        """
        await self.close_all(tenant_id, username, keep=keep)
        yield
        await self.close_all(tenant_id, username, keep=keep)

    async def close_tenant(self, tenant_id: str) -> None:
        """End every session of a tenant, or of all tenants for `*`. Scans all keys: for operator commands only."""
        for pattern in (f"session:{{{tenant_id}:*", f"sessions:{{{tenant_id}:*"):
            async for key in self._redis.scan_iter(match=pattern, count=1000):
                await self._redis.delete(key)


def _not_valid() -> NotAuthenticated:
    return NotAuthenticated("The session token is not valid, or no longer.")


def _session(claims: Mapping[str, Any]) -> Session:
    return Session(str(claims["tenant"]), str(claims["sub"]), str(claims["jti"]), int(claims["exp"]))


def _user_key(tenant_id: str, username: str) -> str:
    # The braces keep a user's keys on one node of a Redis cluster.
    return f"sessions:{{{tenant_id}:{username}}}"


def _session_key(session: Session) -> str:
    return f"session:{{{session.tenant_id}:{session.username}}}:{session.session_id}"
