"""Caches: a bounded one, one of other services' responses, and one of a value per tenant."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Generic, Protocol, TypeVar, cast

from common.concurrency.batching import SingleFlight

Key = TypeVar("Key")
Value = TypeVar("Value")
MAX_TENANTS = 10_000  # with a cache entry, however small
CHECK_MAX_AGE = 1.0  # seconds that a check is valid for one version of the tenant


class FifoCache(Generic[Key, Value]):
    """A cache of at most `limit` entries, or of that total size. The oldest entry is dropped to make room."""

    def __init__(self, limit: int, *, size: Callable[[Value], int] = lambda _: 1) -> None:
        """`size` measures a value; one that is larger than `limit` is not cached."""
        self._limit = limit
        self._size = size
        self._used = 0
        self._values: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        self._drop(key)
        if (size := self._size(value)) > self._limit:
            return
        while self._used + size > self._limit:
            self.drop_first()
        self._values[key] = value
        self._used += size

    def drop_first(self) -> bool:
        """Drop the oldest entry; False if there is none."""
        for key in self._values:
            self._drop(key)
            return True
        return False

    def clear(self) -> None:
        self._values.clear()
        self._used = 0

    def _drop(self, key: Key) -> None:
        if key in self._values:
            self._used -= self._size(self._values.pop(key))


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


class Revised(Protocol):
    """A value at a revision of its tenant's data; `size` is in bytes."""

    @property
    def revision(self) -> str: ...
    @property
    def size(self) -> int: ...


class TenantState(Protocol):
    """The revision of a tenant's data, and its latest changes."""

    @property
    def revision(self) -> str: ...

    def since(self, revision: str) -> Set[str] | None:
        """Return the items that may have changed since a revision, None if that may be all."""


RevisedValue = TypeVar("RevisedValue", bound=Revised)
State = TypeVar("State", bound=TenantState)


class Reader(Protocol[RevisedValue]):
    """Reads the values that the cache keeps."""

    async def read_all(self, tenant_id: str, revision: str, reserve: Callable[[int], None]) -> RevisedValue:
        """Read a value as a whole, and reserve the memory that it takes so far. Raises TooLarge."""

    async def update(self, tenant_id: str, value: RevisedValue, revision: str, changed: Set[str]) -> RevisedValue:
        """Return a copy of the value with the changed items read again."""


class TooLarge(Exception):
    """A value does not fit into the cache."""


@dataclass(frozen=True)
class RevisionCheck(Generic[State]):
    """The state that one query of the database returned; `number` counts the queries."""

    number: int
    state: State


@dataclass(frozen=True)
class _VersionCheck(Generic[State]):
    """A check that began when a caller already had the tenant's `version`, and found nothing new."""

    version: str
    expires: float
    check: RevisionCheck[State]


class _TenantEntry(Generic[RevisedValue, State]):
    def __init__(self, tenant_id: str, check: Callable[[], Awaitable[RevisionCheck[State]]]) -> None:
        self.tenant_id = tenant_id
        self.checks = SingleFlight(check)
        self.last_check: _VersionCheck[State] | None = None
        self.lock = asyncio.Lock()
        self.value: RevisedValue | None = None
        self.size = 0
        self.check_number = 0  # of the check at which the value was current
        self.is_too_large = False


class TenantCache(Generic[RevisedValue, State]):
    """Keeps values within `max_size` bytes. The values of tenants without recent requests are dropped first.

    `on_release` receives each value that the cache drops, with its successor. `on_evict` is called when one value is
    dropped to make room for another.
    """

    def __init__(
        self,
        read_state: Callable[[str, str], Awaitable[State]],
        reader: Reader[RevisedValue],
        *,
        max_size: int,
        on_release: Callable[[RevisedValue, RevisedValue | None], None] = lambda old, new: None,
        on_evict: Callable[[], None] = lambda: None,
    ) -> None:
        """`read_state` receives the tenant and the cached revision, whose changes it may leave out."""
        self._read_state = read_state
        self._reader = reader
        self._max_size = max_size
        self._on_release = on_release
        self._on_evict = on_evict
        self._numbers = count(1)
        self._entries: OrderedDict[str, _TenantEntry[RevisedValue, State]] = OrderedDict()
        self._reading = asyncio.Lock()  # Only one value at a time takes memory that is not counted yet.
        self.size = 0  # bytes of all values

    @property
    def count(self) -> int:
        return sum(entry.value is not None for entry in self._entries.values())

    async def check(self, tenant_id: str, version: str = "") -> RevisionCheck[State]:
        """Return the current state: it includes every change that was answered before this call.

        With a tenant's `version`, it includes every change that was answered before the caller read the version. Each
        change ends with another version, so calls with one version share a query for `CHECK_MAX_AGE` seconds.
        """
        entry, now = self._entry(tenant_id), time.monotonic()
        last = entry.last_check
        if last is not None and last.version == version and now < last.expires:
            return last.check
        check = await entry.checks.run()
        if version and entry.value is not None and check.state.since(entry.value.revision) == frozenset():
            entry.last_check = _VersionCheck(version, now + CHECK_MAX_AGE, check)
        return check

    def is_too_large(self, tenant_id: str) -> bool:
        return self._entry(tenant_id).is_too_large

    def set_measured_size(self, tenant_id: str, size: int) -> None:
        """Note the size of a value that was read without the cache, which decides whether the cache keeps it."""
        self._entry(tenant_id).is_too_large = size > self._max_size

    def lock(self, tenant_id: str) -> asyncio.Lock:
        """Return the lock to hold around `get` and `recount`."""
        return self._entry(tenant_id).lock

    async def get(self, tenant_id: str, check: RevisionCheck[State]) -> RevisedValue | None:
        """Return the value as it was at the check, or later; None if it is too large. The caller holds the lock."""
        entry = self._entry(tenant_id)
        if entry.is_too_large:
            return None
        if entry.value is None or entry.check_number < check.number:
            try:
                value = await self._read(entry, check.state)
            except TooLarge:
                self._set(entry, None, 0)
                entry.is_too_large = True
                return None
            self._set(entry, value, value.size)
            entry.check_number = check.number
            self._evict_others(entry)
        return entry.value

    def recount(self, tenant_id: str, value: RevisedValue) -> None:
        """Count a value again that has grown, and drop others if it needs the room."""
        entry = self._entry(tenant_id)
        if entry.value is value:
            self._set(entry, value, value.size)
            self._evict_others(entry)

    async def _read(self, entry: _TenantEntry[RevisedValue, State], state: State) -> RevisedValue:
        """Read the current value, or update the cached one. Raises TooLarge."""
        value = entry.value  # Another tenant may evict it while this reads.
        changed = state.since(value.revision) if value is not None else None
        if value is not None and changed is not None:
            if not changed:
                return value
            updated = await self._reader.update(entry.tenant_id, value, state.revision, changed)
            if updated.size <= self._max_size:
                return updated
        self._set(entry, None, 0)  # There may not be room for both.
        async with self._reading:
            return await self._reader.read_all(entry.tenant_id, state.revision, partial(self._reserve, entry))

    def _reserve(self, entry: _TenantEntry[RevisedValue, State], size: int) -> None:
        if size > self._max_size:
            raise TooLarge
        self._set(entry, None, size)
        self._evict_others(entry)

    def _entry(self, tenant_id: str) -> _TenantEntry[RevisedValue, State]:
        if tenant_id not in self._entries:
            self._entries[tenant_id] = _TenantEntry(tenant_id, partial(self._check, tenant_id))
            if len(self._entries) > MAX_TENANTS:
                oldest = next(iter(self._entries.values()))
                self._set(oldest, None, 0)
                del self._entries[oldest.tenant_id]
        self._entries.move_to_end(tenant_id)
        return self._entries[tenant_id]

    async def _check(self, tenant_id: str) -> RevisionCheck[State]:
        entry = self._entries.get(tenant_id)
        number, revision = next(self._numbers), entry.value.revision if entry and entry.value else ""
        return RevisionCheck(number, await self._read_state(tenant_id, revision))

    def _set(self, entry: _TenantEntry[RevisedValue, State], value: RevisedValue | None, size: int) -> None:
        old, entry.value = entry.value, value
        if old is not None and old is not value:
            self._on_release(old, value)
        if self._entries.get(entry.tenant_id) is entry:  # The entry of a removed tenant is not counted.
            self.size += size - entry.size
            entry.size = size

    def _evict_others(self, entry: _TenantEntry[RevisedValue, State]) -> None:
        for other in self._entries.values():
            if self.size <= self._max_size:
                return
            if other is not entry and other.value is not None:
                self._set(other, None, 0)
                self._on_evict()
