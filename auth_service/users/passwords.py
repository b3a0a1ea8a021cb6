"""Passwords, hashed with argon2id off the event loop, a few at a time."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError

from auth_service.model import PASSWORD_LIMIT, PASSWORD_MINIMUM
from common.concurrency.limits import ConcurrencyLimit
from common.errors import InvalidField
from common.http.forms import clean
from common.telemetry import log

AT_ONCE = 4  # hashes; each holds 19 MiB and a core for about 25 ms
GIVING_WAY = 10  # the niceness of who hashes: with few cores everybody else would wait for a free one
TIMEOUT = 10.0  # seconds that one waits for one's turn; the gateway waits longer
COSTS = ("memory_cost", "time_cost", "parallelism", "hash_len", "salt_len")


class Passwords:
    """Hashes and compares; parameters as OWASP gives them for argon2id."""

    def __init__(self) -> None:
        self._hasher = password_hasher()
        self._turns = ConcurrencyLimit(AT_ONCE)
        self._threads = ThreadPoolExecutor(thread_name_prefix="passwords", initializer=_give_way)
        # Compared with where there is no such user, so that an answer takes as long as with one.
        self._nobody = self._hasher.hash("nobody has this password")
        self._parameters = extract_parameters(self._nobody)

    async def hash(self, password: str) -> str:
        async with self._turns.acquire(TIMEOUT):
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._hasher.hash, password)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One's turn to `compare`, for whoever has something to look up in it. Raises Overloaded."""
        async with self._turns.acquire(TIMEOUT):
            yield

    async def compare(self, password_hash: str | None, password: str) -> bool:
        """Within one's turn: whether the password is the one; None, for no such user, takes as long and is False.

        A hash that costs more than ours is never computed: it takes as long as no user, and is False.
        """
        is_known = password_hash is not None and self._is_affordable(password_hash)
        known = password_hash if password_hash is not None and is_known else self._nobody
        right = await asyncio.get_running_loop().run_in_executor(self._threads, self._matches, known, password)
        return right and is_known

    def _is_affordable(self, password_hash: str) -> bool:
        """Whether a hash costs at most what ours do."""
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
    """The hasher of new passwords. Its costs may grow but never shrink: `compare` refuses hashes that cost more."""
    return PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)


def has_our_parameters(password_hash: str) -> bool:
    """Whether a hash was made with the parameters of new passwords."""
    try:
        return not password_hasher().check_needs_rehash(password_hash)
    except InvalidHashError:
        return False


def _give_way() -> None:
    """Let this thread have what others leave of the cores; elsewhere than on Linux only whole processes can be nice."""
    if sys.platform == "linux":
        with suppress(OSError):  # A sandbox may refuse it; who cannot give way hashes all the same.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), GIVING_WAY)


def new_password(field: str, value: str) -> str:
    """A password someone may choose: at least 12 characters.

    Raises:
        InvalidField: it is shorter, longer than 1,024 characters, or holds characters nobody can type.
    """
    password = clean(field, value, limit=PASSWORD_LIMIT)
    if len(password) < PASSWORD_MINIMUM:
        message = f"must have at least {PASSWORD_MINIMUM} characters"
        raise InvalidField(field, message, reason="too_short", least=PASSWORD_MINIMUM)
    return password
