"""What other services said of a tenant, which counts while the tenant's stamp stays."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from common.caching.bounded_cache import FifoCache

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True)
class _Kept(Generic[Value]):
    value: Value
    stamp: str | None
    until: float


class ResponseCache(Generic[Key, Value]):
    """Answers by what was asked, for some seconds; who asks while the same is being asked gets that answer.

    A stamp is read before the question is asked, and None where Redis does not tell it. Then nothing counts that is
    remembered, unless `unstamped` says that it does. Errors are nothing to remember.
    """

    def __init__(
        self, *, seconds: float, most: int, unstamped: bool = False, size: Callable[[Value], int] | None = None
    ) -> None:
        """`most` is a number of answers, or where `size` tells how much one takes, of that."""
        self._seconds = seconds
        self._unstamped = unstamped
        self._kept: FifoCache[Key, _Kept[Value]] = FifoCache(most, size=lambda kept: size(kept.value) if size else 1)
        self._asking: dict[tuple[Key, str | None], asyncio.Task[Value]] = {}

    def get_stale(self, key: Key) -> Value | None:
        """What was said last, be it still so or not."""
        kept = self._kept.get(key)
        return kept.value if kept else None

    def evict_oldest(self) -> bool:
        """Forget what was remembered first; whether there was anything."""
        return self._kept.drop_first()

    def get(self, key: Key, stamp: str | None) -> Value | None:
        """What is remembered and counts; what `of` gives without asking."""
        kept = self._counting(key, stamp)
        return kept.value if kept else None

    async def get_or_fetch(self, key: Key, stamp: str | None, ask: Callable[[], Awaitable[Value]]) -> Value:
        """The answer, asked for where none is remembered. Raises what `ask` raises."""
        if (kept := self._counting(key, stamp)) is not None:
            return kept.value
        if stamp is None and not self._unstamped:
            return await ask()
        asking = self._asking.get((key, stamp))
        if asking is None:
            asking = self._asking[key, stamp] = asyncio.create_task(self._ask(key, stamp, ask))
            asking.add_done_callback(_seen)
        return await asyncio.shield(asking)

    def _counting(self, key: Key, stamp: str | None) -> _Kept[Value] | None:
        """What is remembered, where it counts."""
        kept = self._kept.get(key)
        if kept is None or time.monotonic() >= kept.until:
            return None
        return kept if (kept.stamp == stamp if stamp is not None else self._unstamped) else None

    async def _ask(self, key: Key, stamp: str | None, ask: Callable[[], Awaitable[Value]]) -> Value:
        until = time.monotonic() + self._seconds
        try:
            value = await ask()
        finally:
            del self._asking[key, stamp]
        self._kept.put(key, _Kept(value, stamp, until))
        return value


def _seen(task: "asyncio.Task[Value]") -> None:
    """Whoever asked may have gone: an error that nobody hears of is no error of ours."""
    if not task.cancelled():
        task.exception()
