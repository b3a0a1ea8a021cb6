"""Passwords, hashed with argon2id off the event loop, a few at a time."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError

from auth_service.model import PASSWORD_LIMIT, PASSWORD_MINIMUM
from common.errors import InvalidField
from common.forms import clean
from common.turns import Turns

AT_ONCE = 4  # hashes; each holds 19 MiB and a core for about 25 ms
GIVING_WAY = 10  # the niceness of who hashes: with few cores everybody else would wait for a free one
PATIENCE = 10.0  # seconds that one waits for one's turn; the gateway waits longer


class Passwords:
    """Hashes and compares; parameters as OWASP gives them for argon2id."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)
        self._turns = Turns(AT_ONCE)
        self._threads = ThreadPoolExecutor(thread_name_prefix="passwords", initializer=_give_way)
        # Compared with where there is no such user, so that an answer takes as long as with one.
        self._nobody = self._hasher.hash("nobody has this password")

    async def hash(self, password: str) -> str:
        async with self._turns.one(PATIENCE):
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._hasher.hash, password)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One's turn to `compare`, for whoever has something to look up in it. Raises Overloaded."""
        async with self._turns.one(PATIENCE):
            yield

    async def compare(self, password_hash: str | None, password: str) -> bool:
        """Within one's turn: whether the password is the one; None, for no such user, takes as long and is False."""
        known = password_hash or self._nobody
        right = await asyncio.get_running_loop().run_in_executor(self._threads, self._matches, known, password)
        return right and password_hash is not None

    def _matches(self, password_hash: str, password: str) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except VerificationError:
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
        raise InvalidField(field, f"must have at least {PASSWORD_MINIMUM} characters")
    return password
