"""A cache of other services' responses about a tenant, valid while the tenant's version stays the same."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from common.caching.bounded_cache import FifoCache

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True)
class _Entry(Generic[Value]):
    value: Value
    version: str | None
    expires: float


class ResponseCache(Generic[Key, Value]):
    """Values by key, for `max_age` seconds. Concurrent fetches of one key and version share one request.

    A caller reads the tenant's version before it fetches. The version is None while Redis does not answer. Then no
    entry is valid, unless the cache works `without_version`. Errors are not cached.
    """

    def __init__(
        self,
        *,
        max_age: float | Callable[[Value], float],
        limit: int,
        without_version: bool = False,
        size: Callable[[Value], int] = lambda _: 1,
    ) -> None:
        """`limit` is the greatest sum of the values' sizes."""
        self._max_age = max_age
        self._without_version = without_version
        self._entries: FifoCache[Key, _Entry[Value]] = FifoCache(limit, size=lambda entry: size(entry.value))
        self._fetches: dict[tuple[Key, str | None], asyncio.Future[Value]] = {}

    def get_stale(self, key: Key) -> Value | None:
        """The last value of a key, valid or not."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def evict_oldest(self) -> bool:
        """Drop the oldest entry. Returns False if there is none."""
        return self._entries.drop_first()

    def get(self, key: Key, version: str | None) -> Value | None:
        """The valid value of a key; None if there is none. It costs less than `get_or_fetch`."""
        entry = self._valid_entry(key, version)
        return None if entry is None else entry.value

    async def get_or_fetch(self, key: Key, version: str | None, fetch: Callable[[], Awaitable[Value]]) -> Value:
        """The valid value of a key, fetched if there is none. Raises what `fetch` raises."""
        while True:
            if (entry := self._valid_entry(key, version)) is not None:
                return entry.value
            if version is None and not self._without_version:
                return await fetch()
            running = self._fetches.get((key, version))
            if running is None:
                return await self._fetch(key, version, fetch)
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # The caller who fetches was cancelled, or this one.
                if not running.cancelled() or cast("asyncio.Task[object]", asyncio.current_task()).cancelling():
                    raise

    def _valid_entry(self, key: Key, version: str | None) -> _Entry[Value] | None:
        entry = self._entries.get(key)
        if entry is None or time.monotonic() >= entry.expires:
            return None
        return entry if (entry.version == version if version is not None else self._without_version) else None

    async def _fetch(self, key: Key, version: str | None, fetch: Callable[[], Awaitable[Value]]) -> Value:
        """Fetch in the caller's own task: another task for each would cost as much as the rest of this module."""
        began = time.monotonic()
        answer = self._fetches[key, version] = asyncio.get_running_loop().create_future()
        try:
            value = await fetch()
        except Exception as error:
            answer.set_exception(error)
            answer.exception()  # Perhaps nobody waits; asyncio would log an error that nobody retrieved.
            raise
        except BaseException:
            answer.cancel()  # Another waiting caller fetches.
            raise
        finally:
            del self._fetches[key, version]
        max_age = self._max_age(value) if callable(self._max_age) else self._max_age
        self._entries.put(key, _Entry(value, version, began + max_age))
        answer.set_result(value)
        return value
