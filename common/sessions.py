"""Administrators' sessions: a JWT says who, Redis says whether it is still alive (section 5.1).

A session ends `lifetime` seconds after the login and `idle` seconds after its last use, by Redis's own clock. Where
Redis does not answer nobody is let in: a signature alone never counts.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import jwt
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeout

from common.errors import NotAuthenticated
from common.signing import ALGORITHM, Keys
from common.turns import Turns, within

__all__ = ["RedisError", "Session", "Sessions", "open_redis"]

AUDIENCE = "session"

CONNECTIONS = 128
TURN_PATIENCE = 3.0  # seconds that a call waits for one of them
ANSWER_PATIENCE = 1.0  # seconds that Redis may take, the connecting included

# KEYS: the session, the user's sessions by their ends. ARGV: session id, lifetime, idle (seconds).
_OPEN = """
local now = tonumber(redis.call('TIME')[1])
redis.call('SET', KEYS[1], now + ARGV[2], 'EX', math.min(ARGV[2], ARGV[3]))
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
redis.call('EXPIREAT', KEYS[2], redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2])
return 1
"""

# KEYS: the session. ARGV: idle (seconds). Answers 1 where the session lives, and counts this as a use of it.
_CHECK = """
local ends = redis.call('GET', KEYS[1])
if not ends then return 0 end
local left = tonumber(ends) - tonumber(redis.call('TIME')[1])
if left <= 0 then redis.call('DEL', KEYS[1]) return 0 end
redis.call('EXPIRE', KEYS[1], math.min(left, ARGV[1]))
return 1
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
    """One sign-in of a user of a tenant."""

    tenant_id: str
    username: str
    session_id: str


@asynccontextmanager
async def open_redis(url: str) -> AsyncIterator["Redis"]:
    """A client that says within about a second that Redis is away; calls beyond its connections wait their turn."""
    pool: ConnectionPool = ConnectionPool.from_url(
        url,
        socket_connect_timeout=None,
        socket_timeout=None,
        retry=Retry(ConstantBackoff(0.05), 1),
        max_connections=CONNECTIONS,
        decode_responses=True,
    )
    client = _Redis.from_pool(pool)
    try:
        yield client
    finally:
        await client.aclose()


class _Redis(Redis):
    """Every command waits its turn, and raises Overloaded where that does not come; RedisError without an answer."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._turns = Turns(CONNECTIONS)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        async with self._turns.one(TURN_PATIENCE):
            try:
                async with within(ANSWER_PATIENCE):
                    return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
            except TimeoutError:
                raise RedisTimeout("Redis does not answer.") from None


class Sessions:
    """Opens, checks and ends sessions. Every method raises RedisError where Redis does not answer."""

    def __init__(self, redis: "Redis", *, keys: Keys, lifetime: int, idle: int) -> None:
        """`keys` are those of tokens; `lifetime` and `idle` are seconds."""
        self._redis = redis
        self._keys = keys
        self._lifetime = lifetime
        self._idle = idle
        self._open: Any = redis.register_script(_OPEN)
        self._check: Any = redis.register_script(_CHECK)
        self._end_all: Any = redis.register_script(_END_ALL)

    async def open(self, tenant_id: str, username: str) -> str:
        """A new session's token."""
        session = Session(tenant_id, username, uuid4().hex)
        await self._open(
            keys=[_session_key(session), _user_key(tenant_id, username)],
            args=[session.session_id, self._lifetime, self._idle],
        )
        now = int(time.time())
        claims = {
            "aud": AUDIENCE,
            "tenant": tenant_id,
            "sub": username,
            "jti": session.session_id,
            "iat": now,
            "exp": now + self._lifetime,
        }
        return jwt.encode(claims, self._keys.signing, algorithm=ALGORITHM)

    async def check(self, tenant_id: str, token: str) -> Session:
        """The session of a token, used just now. One Lua call.

        Raises:
            NotAuthenticated: the token is not ours, another tenant's, expired, idle for too long or logged out.
            Overloaded: too many are looked up at once.
        """
        session = self.read(token)
        if session.tenant_id != tenant_id or not await self._check(keys=[_session_key(session)], args=[self._idle]):
            raise NotAuthenticated("The session token is not valid, or no longer.")
        return session

    def read(self, token: str) -> Session:
        """What a token says, its life aside.

        Raises:
            NotAuthenticated: the token is not ours, or past its hour.
        """
        try:
            claims = self._keys.claims(token, audience=AUDIENCE, required=["jti", "sub"])
            return Session(str(claims["tenant"]), str(claims["sub"]), str(claims["jti"]))
        except (jwt.InvalidTokenError, UnicodeError, KeyError, ValueError):
            raise NotAuthenticated("The session token is not valid, or no longer.") from None

    async def close(self, session: Session) -> None:
        """End a session; ending one that is over already changes nothing."""
        await self._redis.delete(_session_key(session))
        await self._redis.zrem(_user_key(session.tenant_id, session.username), session.session_id)

    async def close_all(self, tenant_id: str, username: str, *, keep: str = "") -> None:
        """End every session of a user, one session id aside."""
        prefix = _session_key(Session(tenant_id, username, ""))
        await self._end_all(keys=[_user_key(tenant_id, username)], args=[prefix, keep])

    async def close_tenant(self, tenant_id: str) -> None:
        """End every session of a tenant, whoever its users were. Looks through all keys: for an operator's use."""
        for pattern in (f"session:{{{tenant_id}:*", f"sessions:{{{tenant_id}:*"):
            async for key in self._redis.scan_iter(match=pattern, count=1000):
                await self._redis.delete(key)


def _user_key(tenant_id: str, username: str) -> str:
    # The braces keep a user's keys on one node of a Redis cluster.
    return f"sessions:{{{tenant_id}:{username}}}"


def _session_key(session: Session) -> str:
    return f"session:{{{session.tenant_id}:{session.username}}}:{session.session_id}"
