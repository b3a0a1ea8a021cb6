"""Hashes passwords with argon2id in threads, a few at a time."""

import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError

from auth_service.users.model import PASSWORD_LIMIT, PASSWORD_MINIMUM
from common.concurrency.limits import ConcurrencyLimit
from common.errors import InvalidField
from common.http.forms import clean
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
