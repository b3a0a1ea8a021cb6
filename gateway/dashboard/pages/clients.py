"""The page of the clients of a tenant."""

import asyncio
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.pagination import paginate


async def show(page: PageRequest) -> web.Response:
    """The page. The query's `search` is a part of a name or address, or the end of a token."""
    search = page.request.query.get("search", "").strip()

    async def fetch(offset: int, limit: int) -> tuple[Sequence[Any], int]:
        matches = await page.fetch("find_clients", text=search, offset=str(offset), limit=str(limit))
        return matches["clients"], matches["total"]

    information, part = await asyncio.gather(page.fetch("server_information"), paginate(page.request, fetch))
    return page.render("clients.html", information=information, search=search, part=part, base_url=page.caller.base_url)
