"""Keeps searches from blocking the event loop: they pause, and their number is limited."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from common.auth.internal_tokens import Caller
from common.concurrency.limits import ConcurrencyLimit

STRETCH = 0.005  # seconds between two pauses
SEARCHES_OF_NETWORK = 2  # searches at once that scan texts, from one network, in a process
SEARCHES_OF_TENANT = 4  # the same of one tenant
SEARCHES_WAITING = 1024  # waiting searches of each network and of each tenant; more are refused
SEARCH_TIMEOUT = 3.0  # seconds


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
    """Lets other tasks run between two pieces of work."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def pause(self) -> None:
        """Yield to other tasks if the last pause was a while ago."""
        if time.perf_counter() - self._began >= STRETCH:
            await asyncio.sleep(0)
            self._began = time.perf_counter()
