"""The queries of the outbox."""

from unittest.mock import AsyncMock, Mock

import pytest

from upload_service.model import Status, Upload
from upload_service.uploads.outbox import Outbox


async def test_one_complete_upload_costs_two_queries_of_the_database() -> None:
    upload = Upload("acme", "f", "", 10, status=Status.COMPLETE)
    store = Mock(lease_unannounced=AsyncMock(side_effect=[upload, None]), mark_announced=AsyncMock())
    outbox = Outbox(store, Mock(publish=AsyncMock()), Mock(finalize=AsyncMock()))

    await outbox.relay()

    assert store.lease_unannounced.await_count == 2
    store.mark_announced.assert_awaited_once_with(upload)


async def test_a_record_that_fails_delays_no_other_one() -> None:
    uploads = [Upload("acme", f"f{number}", f"u{number}", 10, status=Status.COMPLETE) for number in range(30)]
    store = Mock(lease_unannounced=AsyncMock(side_effect=[*uploads, None]), mark_announced=AsyncMock())
    folder = Mock(finalize=AsyncMock(side_effect=[OSError("a damaged disk"), *[None] * 29]))

    with pytest.raises(OSError, match="damaged"):
        await Outbox(store, Mock(publish=AsyncMock()), folder).relay()

    assert store.mark_announced.await_count == 29
