"""Sends a tenant's events to the open pages of its users, as they happen. Nothing is stored."""

from asyncio import Queue
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from common.errors import Overloaded
from common.events import Event

MAX_WATCHERS = 100  # of a tenant in one process
MAX_PER_USER = 16  # of these; the next one replaces the user's oldest
MAX_QUEUED = 32  # events for one watcher; a slower one is disconnected, and loads its page again
SOON, LATER = 3, 30  # seconds until a disconnected page connects again


@dataclass(frozen=True)
class StreamEnd:
    """The end of a stream. The page connects again after so many seconds."""

    reconnect_in: int


Watcher = Queue[Event | StreamEnd]


class EventHub:
    """Publishes events to the watchers of their tenant."""

    def __init__(self) -> None:
        self._users: dict[str, dict[Watcher, str]] = {}  # by tenant, the user of each watcher, the oldest first
        self._is_closed = False

    def publish(self, event: Event) -> None:
        for watcher in self._users.get(event.tenant_id, ()):
            if watcher.full():
                _end(watcher, SOON)
            else:
                watcher.put_nowait(event)

    @contextmanager
    def subscribe(self, tenant_id: str, username: str) -> Iterator[Watcher]:
        """Receive a tenant's events within the block. Raises Overloaded if the tenant has too many watchers.

        A user's newest page is always served. Above the user's limit, the oldest page is disconnected, and connects
        again later rather than soon, so that open pages take turns.
        """
        if self._is_closed:
            raise Overloaded
        users = self._users.setdefault(tenant_id, {})
        own = [watcher for watcher, user in users.items() if user == username]
        if len(own) >= MAX_PER_USER:
            del users[own[0]]
            _end(own[0], LATER)
        elif len(users) >= MAX_WATCHERS:
            raise Overloaded
        watcher = Watcher(MAX_QUEUED)
        users[watcher] = username
        try:
            yield watcher
        finally:
            self._remove(tenant_id, watcher)

    def _remove(self, tenant_id: str, watcher: Watcher) -> None:
        users = self._users.get(tenant_id, {})
        users.pop(watcher, None)
        if not users:
            self._users.pop(tenant_id, None)

    def close(self) -> None:
        """Disconnect all watchers, and refuse new ones."""
        self._is_closed = True
        for users in self._users.values():
            for watcher in users:
                _end(watcher, SOON)


def _end(watcher: Watcher, reconnect_in: int) -> None:
    while not watcher.empty():
        watcher.get_nowait()
    watcher.put_nowait(StreamEnd(reconnect_in))
