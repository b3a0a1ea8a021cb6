"""What happens in a tenant, told to the browsers that watch it: as it happens, to nobody else, and kept for no one."""

from asyncio import Queue
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from common.errors import Overloaded
from common.events import Event

WATCHERS = 100  # of a tenant at once, in one process
OF_ONE_USER = 16  # of these; the next takes the place that the user has had the longest
WAITING = 32  # events for one watcher; who has more than that is let go, and looks again when it is back
SOON, LATER = 3, 30  # seconds


@dataclass(frozen=True)
class StreamEnd:
    """That was all. A watcher may be back in so many seconds."""

    back_in: int


Watcher = Queue[Event | StreamEnd]


class EventHub:
    """Tells watchers."""

    def __init__(self) -> None:
        self._users: dict[str, dict[Watcher, str]] = {}  # by tenant, the user of each watcher, the oldest first
        self._closed = False

    def tell(self, event: Event) -> None:
        """Tell an event to those who watch its tenant."""
        for watcher in self._users.get(event.tenant_id, ()):
            if watcher.full():
                _end(watcher, SOON)
            else:
                watcher.put_nowait(event)

    @contextmanager
    def watching(self, tenant_id: str, username: str) -> Iterator[Watcher]:
        """Watch a tenant within the block. Raises Overloaded where as many do as may.

        A user's newest page is told, whatever became of their others: of more than may be, the oldest is let go, and
        comes back later rather than soon, so that pages which are all looked at take turns.
        """
        if self._closed:
            raise Overloaded
        users = self._users.setdefault(tenant_id, {})
        own = [watcher for watcher, user in users.items() if user == username]
        if len(own) >= OF_ONE_USER:
            del users[own[0]]
            _end(own[0], LATER)
        elif len(users) >= WATCHERS:
            raise Overloaded
        watcher = Watcher(WAITING)
        users[watcher] = username
        try:
            yield watcher
        finally:
            self._leave(tenant_id, watcher)

    def _leave(self, tenant_id: str, watcher: Watcher) -> None:
        users = self._users.get(tenant_id, {})
        users.pop(watcher, None)
        if not users:
            self._users.pop(tenant_id, None)

    def close(self) -> None:
        """Let everyone go, and nobody come."""
        self._closed = True
        for users in self._users.values():
            for watcher in users:
                _end(watcher, SOON)


def _end(watcher: Watcher, back_in: int) -> None:
    while not watcher.empty():
        watcher.get_nowait()
    watcher.put_nowait(StreamEnd(back_in))
