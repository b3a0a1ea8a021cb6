"""The page of the clients of a tenant."""

import asyncio

from aiohttp import web

from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.pagination import paginate_operation


async def show(page: PageRequest) -> web.Response:
    """The page. The query's `search` is a part of a name or address, or the end of a token."""
    search = page.request.query.get("search", "").strip()
    clients = paginate_operation(page, "find_clients", "clients", text=search)
    information, part = await asyncio.gather(page.server_information(), clients)
    return page.render("clients.html", information=information, search=search, part=part, base_url=page.caller.base_url)
