"""Long work on the event loop, in which others have their turn, and the limit on how much of it runs at once."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from common.auth.callers import Caller
from common.concurrency.limits import ConcurrencyLimit

STRETCH = 0.005  # seconds for which others wait
SEARCHES_OF_NETWORK = 2  # searches at once that scan texts, from one network, in a process
SEARCHES_OF_TENANT = 4  # the same of one tenant
SEARCHES_WAITING = 1024  # searches that wait for these, of each network and of each tenant; more are refused at once
SEARCH_TIMEOUT = 3.0  # seconds that one waits


class SearchLimit:
    """Limits the searches that scan texts, for each network and for each tenant.

    A search waits in a short queue. One network, or one tenant, cannot use up the processor time of a replica.
    """

    def __init__(self) -> None:
        # An entry exists while a search holds it.
        self._networks: WeakValueDictionary[str, ConcurrencyLimit] = WeakValueDictionary()
        self._tenants: WeakValueDictionary[str, ConcurrencyLimit] = WeakValueDictionary()

    @asynccontextmanager
    async def acquire(self, caller: Caller) -> AsyncIterator[None]:
        """Run a search of this caller within the limits. Raises Overloaded."""
        network = self._networks.setdefault(
            caller.network, ConcurrencyLimit(SEARCHES_OF_NETWORK, waiting=SEARCHES_WAITING)
        )
        tenant = self._tenants.setdefault(
            caller.tenant_id, ConcurrencyLimit(SEARCHES_OF_TENANT, waiting=SEARCHES_WAITING)
        )
        async with network.acquire(SEARCH_TIMEOUT), tenant.acquire(SEARCH_TIMEOUT):
            yield


class CooperativeYield:
    """What is asked between two pieces of work whether it is the others' turn."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def pause(self) -> None:
        """Let others have their turn, where they have waited for a while."""
        if time.perf_counter() - self._began >= STRETCH:
            await asyncio.sleep(0)
            self._began = time.perf_counter()
