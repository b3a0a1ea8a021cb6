"""Administrators' sessions: a JWT says who, Redis says whether it is still alive (section 5.1).

A session ends `lifetime` seconds after the login and `idle` seconds after its last use, by Redis's own clock. Where
Redis does not answer nobody is let in: a signature alone never counts.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import jwt

from common.auth.signing import ALGORITHM, Keys
from common.auth.tokens import Tokens
from common.caching.tenant_version import tenant_version_key
from common.concurrency.batching import Batcher
from common.errors import NotAuthenticated
from common.redis import Redis, ScriptRunner

AUDIENCE = "session"

# KEYS: the session, the user's sessions by their ends. ARGV: session id, lifetime, idle (seconds).
_OPEN = """
local now = tonumber(redis.call('TIME')[1])
redis.call('SET', KEYS[1], now + ARGV[2], 'EX', math.min(ARGV[2], ARGV[3]))
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
redis.call('EXPIREAT', KEYS[2], redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2])
return 1
"""

# KEYS: sessions, then tenants' stamps. ARGV: idle (seconds), how many sessions.
# Answers 1 for each session that lives, and counts this as a use of it, else 0; then the stamps. A Redis that starts
# again may have lost its last second, or all it had, and with it words that gateways had seen already: none counts past
# the process that told it, whose run_id is a part of each. Where a tenant is being changed its stamp is "".
_LOOK = """
local now = tonumber(redis.call('TIME')[1])
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local answers = {}
for place, key in ipairs(KEYS) do
  local kept = redis.call('GET', key)
  if place > tonumber(ARGV[2]) then
    answers[place] = kept == '' and '' or run .. (kept or '')
  else
    local left = kept and tonumber(kept) - now or 0
    if left > 0 then redis.call('EXPIRE', key, math.min(left, ARGV[1])) elseif kept then redis.call('DEL', key) end
    answers[place] = left > 0 and 1 or 0
  end
end
return answers
"""

# KEYS: the user's sessions. ARGV: the prefix of session keys, the session id to keep ("" keeps none).
_END_ALL = """
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if id ~= ARGV[2] then
    redis.call('DEL', ARGV[1] .. id)
    redis.call('ZREM', KEYS[1], id)
  end
end
return 1
"""


@dataclass(frozen=True)
class Session:
    """One sign-in of a user of a tenant. It ends at `ends_at`, in seconds since 1970, however much it is used."""

    tenant_id: str
    username: str
    session_id: str
    ends_at: int


@dataclass(frozen=True)
class SessionCheck:
    """What Redis said at one moment: a tenant's stamp, and the session of a token where there was one that lives.

    No stamp stands for a Redis that said nothing, or a tenant that is just being changed, which `changing` tells apart:
    nothing is remembered then.
    """

    stamp: str | None
    session: Session | None = None
    changing: bool = False


class Sessions:
    """Opens, checks and ends sessions. Every method raises RedisError where Redis does not answer."""

    def __init__(self, redis: "Redis", *, keys: Keys, lifetime: int, idle: int) -> None:
        """`keys` are those of tokens; `lifetime` and `idle` are seconds."""
        self._redis = redis
        self._keys = keys
        self._lifetime = lifetime
        self._idle = idle
        self._tokens = Tokens(keys, audience=AUDIENCE, required=["jti", "sub"], parse=_session)
        self._gathered = Batcher(self._look_at_all)
        self._open: Any = redis.register_script(_OPEN)
        self._looks = ScriptRunner(redis, _LOOK)
        self._end_all: Any = redis.register_script(_END_ALL)

    async def open(self, tenant_id: str, username: str) -> str:
        """A new session's token."""
        now = int(time.time())
        session = Session(tenant_id, username, uuid4().hex, now + self._lifetime)
        await self._open(
            keys=[_session_key(session), _user_key(tenant_id, username)],
            args=[session.session_id, self._lifetime, self._idle],
        )
        claims = {
            "aud": AUDIENCE,
            "tenant": tenant_id,
            "sub": username,
            "jti": session.session_id,
            "iat": now,
            "exp": session.ends_at,
        }
        return jwt.encode(claims, self._keys.signing, algorithm=ALGORITHM)

    async def check(self, tenant_id: str, token: str) -> Session:
        """The session of a token, used just now.

        Raises:
            NotAuthenticated: the token is not ours, another tenant's, expired, idle for too long or logged out.
        """
        session = self.read(token)
        if session.tenant_id != tenant_id or not (await self._gathered.submit((_session_key(session), "")))[0]:
            raise NotAuthenticated("The session token is not valid, or no longer.")
        return session

    async def validate(self, tenant_id: str, token: str) -> Session:
        """The session of a token, which is no use of it. Raises NotAuthenticated as `check` does."""
        session = self.read(token)
        if session.tenant_id != tenant_id or not await self.is_alive(session):
            raise NotAuthenticated("The session token is not valid, or no longer.")
        return session

    async def is_alive(self, session: Session) -> bool:
        """Whether a session goes on; to ask is no use of it."""
        return time.time() < session.ends_at and bool(await self._redis.exists(_session_key(session)))

    async def touch(self, tenant_id: str, token: str = "") -> SessionCheck:
        """A tenant's stamp, and the session of a token, used just now; a token that `check` would refuse has none."""
        try:
            session = self.read(token) if token else None
        except NotAuthenticated:
            session = None
        if session is None or session.tenant_id != tenant_id:
            _, stamp = await self._gathered.submit(("", tenant_version_key(tenant_id)))
            return SessionCheck(stamp or None, changing=not stamp)
        lives, stamp = await self._gathered.submit((_session_key(session), tenant_version_key(tenant_id)))
        return SessionCheck(stamp or None, session if lives else None, changing=not stamp)

    def read(self, token: str) -> Session:
        """What a token says, its life aside.

        Raises:
            NotAuthenticated: the token is not ours, or past its hour.
        """
        try:
            return self._tokens.read(token)
        except (jwt.InvalidTokenError, UnicodeError, KeyError, ValueError):
            raise NotAuthenticated("The session token is not valid, or no longer.") from None

    async def _look_at_all(self, asked: Sequence[tuple[str, str]]) -> Sequence[tuple[bool, str]]:
        """Whether sessions live, and stamps, by their keys, "" for none; all in one command."""
        sessions = list({session for session, _ in asked if session})
        stamps = list({stamp for _, stamp in asked if stamp})
        keys = [*sessions, *stamps]
        answers = await self._looks.run(len(keys), *keys, self._idle, len(sessions))
        found = dict(zip(keys, answers, strict=True))
        return [(found.get(session) == 1, found.get(stamp, "")) for session, stamp in asked]

    async def count(self) -> int:
        """How many there are. Looks through all keys, a thousand at a time: for those who run the service."""
        return len({key async for key in self._redis.scan_iter(match="session:{*", count=1000)})

    async def close(self, session: Session) -> None:
        """End a session; ending one that is over already changes nothing."""
        await self._redis.delete(_session_key(session))
        await self._redis.zrem(_user_key(session.tenant_id, session.username), session.session_id)

    async def close_all(self, tenant_id: str, username: str, *, keep: str = "") -> None:
        """End every session of a user, one session id aside."""
        prefix = _session_key(Session(tenant_id, username, "", 0))
        await self._end_all(keys=[_user_key(tenant_id, username)], args=[prefix, keep])

    @asynccontextmanager
    async def close_all_around(self, tenant_id: str, username: str, *, keep: str = "") -> AsyncIterator[None]:
        """End every session of a user, one session id aside, before and after the change in the block.

        Without Redis, the change does not begin. The second time ends the sessions of sign-ins that finished before the
        change. Where only the second time fails, a repeated call ends them.
        """
        await self.close_all(tenant_id, username, keep=keep)
        yield
        await self.close_all(tenant_id, username, keep=keep)

    async def close_tenant(self, tenant_id: str) -> None:
        """End every session of a tenant, whoever its users were. Looks through all keys: for an operator's use."""
        await self._close_all_of(tenant_id)

    async def close_every_tenant(self) -> None:
        """End every session there is. Looks through all keys: for an operator's use."""
        await self._close_all_of("*")

    async def _close_all_of(self, tenants: str) -> None:
        for pattern in (f"session:{{{tenants}:*", f"sessions:{{{tenants}:*"):
            async for key in self._redis.scan_iter(match=pattern, count=1000):
                await self._redis.delete(key)


def _session(claims: Mapping[str, Any]) -> Session:
    return Session(str(claims["tenant"]), str(claims["sub"]), str(claims["jti"]), int(claims["exp"]))


def _user_key(tenant_id: str, username: str) -> str:
    # The braces keep a user's keys on one node of a Redis cluster.
    return f"sessions:{{{tenant_id}:{username}}}"


def _session_key(session: Session) -> str:
    return f"session:{{{session.tenant_id}:{session.username}}}:{session.session_id}"
