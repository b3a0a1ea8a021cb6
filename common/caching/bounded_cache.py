"""A cache with an upper bound."""

from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


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
