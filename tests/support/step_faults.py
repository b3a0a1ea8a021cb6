"""Faults of Redis and MongoDB inside this process: one chosen step of an operation fails."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from common import redis


class Fault(StrEnum):
    NOT_SENT = "the command does not reach the server"
    ANSWER_LOST = "the server does it and the answer is lost"


@dataclass
class Steps:
    """The watched calls of one operation, in their order.

    `between` runs before and after each step. The step with the number `failing_step`, from 1, fails.
    """

    failing_step: int = 0
    fault: Fault = Fault.NOT_SENT
    count: int = 0
    is_watching: bool = False
    between: Callable[[], Awaitable[None]] | None = None

    def watch(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, error: Exception) -> None:
        """Count each call of a method as a step, which fails with `error`."""
        call = getattr(owner, name)

        async def step(*arguments: Any, **options: Any) -> Any:
            return await self._run_step(lambda: call(*arguments, **options), error)

        monkeypatch.setattr(owner, name, step)

    def watch_redis(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count each command to Redis as a step."""
        self.watch(monkeypatch, redis._Redis, "execute_command", RedisConnectionError("a fault of a test"))

    async def run(self, operation: Callable[[], Awaitable[bool]]) -> bool:
        """Run an operation. Its steps are counted, and the step `failing_step` fails."""
        self.count, self.is_watching = 0, True
        try:
            return await operation()
        finally:
            self.is_watching = False

    async def _run_step(self, call: Callable[[], Awaitable[Any]], error: Exception) -> Any:
        if not self.is_watching:
            return await call()
        self.count += 1
        fails = self.count == self.failing_step
        await self._run_between()
        if fails and self.fault is Fault.NOT_SENT:
            raise error
        result = await call()
        await self._run_between()
        if fails:
            raise error
        return result

    async def _run_between(self) -> None:
        if self.between:
            self.is_watching = False
            await self.between()
            self.is_watching = True
