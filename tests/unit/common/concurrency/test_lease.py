"""A lease is renewed while its holder works."""

import asyncio
from collections.abc import Sequence

from structlog.testing import capture_logs

from common.concurrency.background import keep_lease
from common.mongo import MongoError
from tests.support.wait import until


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
