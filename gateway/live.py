"""What happens in a tenant, told to the browsers that watch it: as it happens, to nobody else, and kept for no one."""

from asyncio import Queue
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from common.errors import Overloaded
from common.events import Event

WATCHERS = 100  # of a tenant at once, in one process
WAITING = 32  # events for one watcher; who has more than that is let go, and looks again when it is back

Watcher = Queue[Event | None]  # None: that was all.


class Live:
    """Tells watchers."""

    def __init__(self) -> None:
        self._watchers: defaultdict[str, set[Watcher]] = defaultdict(set)
        self._closed = False

    def tell(self, event: Event) -> None:
        """Tell an event to those who watch its tenant."""
        for watcher in self._watchers.get(event.tenant_id, ()):
            if watcher.full():
                _end(watcher)
            else:
                watcher.put_nowait(event)

    @contextmanager
    def watching(self, tenant_id: str) -> Iterator[Watcher]:
        """Watch a tenant within the block. Raises Overloaded where as many do as may."""
        watchers = self._watchers[tenant_id]
        if self._closed or len(watchers) >= WATCHERS:
            raise Overloaded
        watcher = Watcher(WAITING)
        watchers.add(watcher)
        try:
            yield watcher
        finally:
            watchers.discard(watcher)
            if not watchers:
                self._watchers.pop(tenant_id, None)

    def close(self) -> None:
        """Let everyone go, and nobody come."""
        self._closed = True
        for watchers in self._watchers.values():
            for watcher in watchers:
                _end(watcher)


def _end(watcher: Watcher) -> None:
    while not watcher.empty():
        watcher.get_nowait()
    watcher.put_nowait(None)
