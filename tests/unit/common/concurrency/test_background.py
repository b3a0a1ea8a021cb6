"""Background work is repeated after errors, ends with its service, and renews its lease."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from pymongo.errors import (
    AutoReconnect,
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    ServerSelectionTimeoutError,
    WriteError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeout
from structlog.testing import capture_logs

from common.concurrency.background import keep_lease, repeating, running, with_each
from common.errors import Conflict, Overloaded, Unavailable
from common.mongo import MongoError
from tests.support.tables import each
from tests.support.wait import until

OUTAGES = [
    AutoReconnect("connection closed"),
    NetworkTimeout("timed out"),
    ServerSelectionTimeoutError("no servers found yet"),
    ExecutionTimeout("operation exceeded time limit", 50),
    RedisConnectionError("connection refused"),
    RedisTimeout("Redis does not answer."),
    Unavailable("The storage does not answer."),
    Overloaded(),
]
FAULTS = [
    ValueError("wrong"),
    KeyError("missing"),
    OSError(5, "Input/output error"),
    OperationFailure("unknown operator: $foo", 2),
    WriteError("document failed validation", 121),
    ResponseError("unknown command"),
    Conflict("It changes now."),
]


async def pause() -> None:
    await asyncio.sleep(0)


async def failed_once(error: Exception) -> list[Any]:
    """The log of work that fails once and is repeated."""
    errors, repeated = [error], asyncio.Event()

    async def work() -> None:
        if errors:
            raise errors.pop()
        repeated.set()

    with capture_logs() as logs:
        async with repeating("work", work, pause):
            await repeated.wait()
    return logs


async def failed_item(error: Exception) -> list[Any]:
    """The log of work with two items, of which the first one fails."""
    done = []

    async def work(item: int) -> None:
        if item == 1:
            raise error
        done.append(item)

    with capture_logs() as logs:
        await with_each("work", [1, 2], work)
    assert done == [2]
    return logs


@pytest.mark.parametrize(("fails", "item"), [(failed_once, {}), (failed_item, {"item": "1"})])
@each("error", [*OUTAGES, *FAULTS])
async def test_only_a_store_that_is_away_is_a_warning_without_a_traceback(
    error: Exception, fails: Callable[[Exception], Awaitable[list[Any]]], item: dict[str, str]
) -> None:
    if error in OUTAGES:
        fields: dict[str, Any] = {"event": "background_waits", "log_level": "warning", "error": type(error).__name__}
        fields["reason"] = str(error)
    else:
        fields = {"event": "background_failed", "log_level": "error", "exc_info": error}
    assert await fails(error) == [{**fields, "name": "work", **item}]


async def test_work_that_fails_when_it_is_cancelled_is_not_repeated() -> None:
    calls, started = 0, asyncio.Event()

    async def work() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise asyncio.CancelledError  # It would run for ever.
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise AutoReconnect("The store is away, so the lease cannot be given back.")

    async with repeating("work", work, pause):
        await started.wait()
    assert calls == 1


async def test_no_item_follows_one_that_fails_when_it_is_cancelled() -> None:
    items, started = [], asyncio.Event()

    async def work(item: int) -> None:
        items.append(item)
        started.set()
        try:
            await asyncio.sleep(3600 if len(items) == 1 else 0)
        finally:
            raise AutoReconnect("The store is away, so the lease cannot be given back.")

    async def work_in_rounds() -> None:
        for _ in range(2):
            await with_each("work", [1, 2], work)

    async with running(work_in_rounds()):
        await started.wait()
    assert items == [1]


class Renewals:
    """Counts renewals and returns these results in order, repeating the last."""

    def __init__(self, *results: bool | MongoError) -> None:
        self._results: Sequence[bool | MongoError] = results
        self.count = 0

    async def renew(self) -> bool:
        result = self._results[min(self.count, len(self._results) - 1)]
        self.count += 1
        if isinstance(result, MongoError):
            raise result
        return result

    async def reached(self, count: int) -> None:
        async def is_reached() -> bool:
            return self.count >= count

        await until(is_reached)


async def test_a_lease_is_renewed_until_the_block_ends() -> None:
    renewals = Renewals(True)
    async with keep_lease(renewals.renew, 0.001) as renewal:
        await renewals.reached(3)
        assert not renewal.done()
    count = renewals.count
    await asyncio.sleep(0.02)
    assert renewals.count == count


async def test_a_lost_lease_ends_the_renewal_and_not_the_block() -> None:
    renewals = Renewals(True, False)
    async with keep_lease(renewals.renew, 0.001) as renewal:
        await renewal
        assert renewals.count == 2


async def test_a_renewal_that_fails_is_logged_and_repeated() -> None:
    renewals = Renewals(MongoError("away"), True)
    with capture_logs() as logs:
        async with keep_lease(renewals.renew, 0.001, database="upload"):
            await renewals.reached(2)
    entry = {"event": "lease_not_renewed", "error": "PyMongoError", "database": "upload", "log_level": "warning"}
    assert logs == [entry]
