"""What is remembered, and how much of it at most."""

from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def _one(_: object) -> int:
    return 1


class FifoCache(Generic[Key, Value]):
    """At most so many things, each by its key, or so much of them; what was put in first leaves to make room."""

    def __init__(self, most: int, *, size: Callable[[Value], int] = _one) -> None:
        """`size` tells how much of `most` a thing takes; what takes more than all of it is not kept."""
        self._most = most
        self._size = size
        self._used = 0
        self._kept: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        return self._kept.get(key)

    def put(self, key: Key, value: Value) -> None:
        self._drop(key)
        if (size := self._size(value)) > self._most:
            return
        while self._used + size > self._most:
            self.drop_first()
        self._kept[key] = value
        self._used += size

    def drop_first(self) -> bool:
        """Drop what was put in first; whether there was anything."""
        for key in self._kept:
            self._drop(key)
            return True
        return False

    def clear(self) -> None:
        self._kept.clear()
        self._used = 0

    def _drop(self, key: Key) -> None:
        if key in self._kept:
            self._used -= self._size(self._kept.pop(key))
