"""The names of packages and clients on pages."""

from unittest.mock import AsyncMock, Mock

from common.errors import Unavailable
from gateway.dashboard.page_request import client_names_of, package_names_of


async def test_a_page_does_not_need_the_names_of_its_ids() -> None:
    page = Mock(fetch=AsyncMock(side_effect=Unavailable("away")))

    assert await package_names_of(page, ["Acme.Anvil"]) is None
    assert await client_names_of(page, ["c1"]) == {}
