"""The queries of the outbox."""

from unittest.mock import AsyncMock, Mock

from upload_service.model import Status, Upload
from upload_service.uploads.outbox import Outbox


async def test_one_complete_upload_costs_two_queries_of_the_database() -> None:
    upload = Upload("acme", "f", "", 10, status=Status.COMPLETE)
    store = Mock(lease_unannounced=AsyncMock(side_effect=[upload, None]), mark_announced=AsyncMock())
    outbox = Outbox(store, Mock(publish=AsyncMock()), Mock(finalize=AsyncMock()))

    await outbox.relay()

    assert store.lease_unannounced.await_count == 2
    store.mark_announced.assert_awaited_once_with(upload)
