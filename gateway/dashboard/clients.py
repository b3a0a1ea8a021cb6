"""The clients of the tenant: who may identify themselves, and when they last did."""

import asyncio

from aiohttp import web

from gateway.dashboard.paging import part_of
from gateway.dashboard.visits import Visit


async def show(visit: Visit) -> web.Response:
    """The page; the query's `search` is looked for in names, addresses and the ends of tokens."""
    information, clients = await asyncio.gather(visit.ask("server_information"), visit.ask("get_clients"))
    search = visit.request.query.get("search", "").strip()
    wanted = search.casefold()
    found = [
        client
        for client in clients
        if any(wanted in (client[name] or "").casefold() for name in ("client_name", "ip", "token_hint"))
    ]
    return visit.render(
        "clients.html",
        information=information,
        search=search,
        part=part_of(visit.request, found),
        base_url=visit.caller.base_url,
    )
