"""The download counts of the last days, today included."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from common.mongo import make_indexes, open_database
from tests.support.tables import each
from upload_service.downloads.store import Download, MongoDownloadStore
from upload_service.store import INDEXES

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
NOW = TODAY + timedelta(hours=12)
DAYS = [(TODAY - timedelta(days=ago)).date().isoformat() for ago in range(4)]


@pytest.fixture(scope="module")
async def store(mongo_url: str) -> AsyncIterator[MongoDownloadStore]:
    """Downloads in the first and in the last hour of each of four days: two today, four yesterday, and so on."""
    async with open_database(mongo_url, f"test_counts_{uuid4().hex[:8]}") as database:
        await make_indexes(database, INDEXES)
        store = MongoDownloadStore(database)
        for ago in range(4):
            hours = [TODAY - timedelta(days=ago) + timedelta(hours=hour) for hour in (0, 23)]
            await store.add([Download("acme", "v1", "client", hour) for hour in hours] * (ago + 1))
        yield store
        await database.client.drop_database(database.name)


@each("days", [1, 2, 3])
async def test_counts_are_of_exactly_so_many_days(store: MongoDownloadStore, days: int) -> None:
    expected = {day: 2 * (ago + 1) for ago, day in enumerate(DAYS[:days])}
    assert await store.counts("acme", days, NOW) == {"v1": expected}
    assert await store.counts("acme", days, NOW, ["v1"]) == {"v1": expected}
    assert await store.totals("acme", days, NOW, 10) == (expected, {"v1": sum(expected.values())})
