"""Which packages are hidden from which clients and networks, and the groups that entries share."""

import asyncio
from collections import Counter

from aiohttp import web

from gateway.dashboard.paging import part_of
from gateway.dashboard.visits import Visit

CHOICES = 50  # clients that a new entry is offered at once


async def show(visit: Visit) -> web.Response:
    """The page; the query's `client` is looked for in the names of the clients that a new entry may be about."""
    entries, groups, clients = await asyncio.gather(
        visit.ask("get_blacklist"), visit.ask("get_blacklist_groups"), visit.ask("get_clients")
    )
    search = visit.request.query.get("client", "").strip()
    found = [client for client in clients if search.casefold() in client["client_name"].casefold()]
    found.sort(key=lambda client: client["client_name"].casefold() != search.casefold())  # the very one first
    return visit.render(
        "blacklist.html",
        part=part_of(visit.request, entries),
        groups=groups,
        uses=Counter(entry["group_id"] for entry in entries),
        search=search,
        searchable=len(clients) > CHOICES,
        choices=found[:CHOICES],
        others=len(found[CHOICES:]),
        chosen=found[0]["client_id"] if search and found else "",  # Who looks for one does not mean all of them.
        client_names={client["client_id"]: client["client_name"] for client in clients},
        group_names={group["group_id"]: group["name"] for group in groups},
    )
