"""A cache of one value per tenant, such as its catalog. It reads only what changed since the cached revision."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Generic, Protocol, TypeVar

from common.concurrency.batching import SingleFlight

MAX_TENANTS = 10_000  # with a cache entry, however small
CHECK_MAX_AGE = 1.0  # seconds that a check is valid for one version of the tenant


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


Value = TypeVar("Value", bound=Revised)
State = TypeVar("State", bound=TenantState)


class Reader(Protocol[Value]):
    """Reads the values that the cache keeps."""

    async def read_all(self, tenant_id: str, revision: str, reserve: Callable[[int], None]) -> Value:
        """Read a value as a whole, and reserve the memory that it takes so far. Raises TooLarge."""

    async def update(self, tenant_id: str, value: Value, revision: str, changed: Set[str]) -> Value:
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


class _Entry(Generic[Value, State]):
    def __init__(self, tenant_id: str, check: Callable[[], Awaitable[RevisionCheck[State]]]) -> None:
        self.tenant_id = tenant_id
        self.checks = SingleFlight(check)
        self.last_check: _VersionCheck[State] | None = None
        self.lock = asyncio.Lock()
        self.value: Value | None = None
        self.size = 0
        self.check_number = 0  # of the check at which the value was current
        self.is_too_large = False


class TenantCache(Generic[Value, State]):
    """Keeps values within `max_size` bytes. The values of tenants without recent requests are dropped first.

    `on_release` receives each value that the cache drops, with its successor. `on_evict` is called when one value is
    dropped to make room for another.
    """

    def __init__(
        self,
        read_state: Callable[[str, str], Awaitable[State]],
        reader: Reader[Value],
        *,
        max_size: int,
        on_release: Callable[[Value, Value | None], None] = lambda old, new: None,
        on_evict: Callable[[], None] = lambda: None,
    ) -> None:
        """`read_state` receives the tenant and the cached revision, whose changes it may leave out."""
        self._read_state = read_state
        self._reader = reader
        self._max_size = max_size
        self._on_release = on_release
        self._on_evict = on_evict
        self._numbers = count(1)
        self._entries: OrderedDict[str, _Entry[Value, State]] = OrderedDict()
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

    async def get(self, tenant_id: str, check: RevisionCheck[State]) -> Value | None:
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

    def recount(self, tenant_id: str, value: Value) -> None:
        """Count a value again that has grown, and drop others if it needs the room."""
        entry = self._entry(tenant_id)
        if entry.value is value:
            self._set(entry, value, value.size)
            self._evict_others(entry)

    async def _read(self, entry: _Entry[Value, State], state: State) -> Value:
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

    def _reserve(self, entry: _Entry[Value, State], size: int) -> None:
        if size > self._max_size:
            raise TooLarge
        self._set(entry, None, size)
        self._evict_others(entry)

    def _entry(self, tenant_id: str) -> _Entry[Value, State]:
        if tenant_id not in self._entries:
            self._entries[tenant_id] = _Entry(tenant_id, partial(self._check, tenant_id))
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

    def _set(self, entry: _Entry[Value, State], value: Value | None, size: int) -> None:
        old, entry.value = entry.value, value
        if old is not None and old is not value:
            self._on_release(old, value)
        if self._entries.get(entry.tenant_id) is entry:  # The entry of a removed tenant is not counted.
            self.size += size - entry.size
            entry.size = size

    def _evict_others(self, entry: _Entry[Value, State]) -> None:
        for other in self._entries.values():
            if self.size <= self._max_size:
                return
            if other is not entry and other.value is not None:
                self._set(other, None, 0)
                self._on_evict()
