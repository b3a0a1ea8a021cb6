"""The clients of the tenant: who may identify themselves, and when they last did."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from aiohttp import web

from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.paging import part_of


async def show(visit: PageRequest) -> web.Response:
    """The page; the query's `search` is looked for in names, addresses and the ends of tokens."""
    search = visit.request.query.get("search", "").strip()
    information, part = await asyncio.gather(
        visit.ask("server_information"), part_of(visit.request, partial(_find, visit, search))
    )
    return visit.render(
        "clients.html", information=information, search=search, part=part, base_url=visit.caller.base_url
    )


async def _find(visit: PageRequest, search: str, offset: int, limit: int) -> tuple[Sequence[Any], int]:
    found = await visit.ask("find_clients", text=search, offset=str(offset), limit=str(limit))
    return found["clients"], found["total"]
