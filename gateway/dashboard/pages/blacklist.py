"""Which packages are hidden from which clients and networks, and the groups that entries share."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.paging import listed, part_of

CHOICES = 50  # clients that a new entry is offered at once


async def show(visit: PageRequest) -> web.Response:
    """The page; the query's `client` is looked for among the clients that a new entry may be about."""
    search = visit.request.query.get("client", "").strip()
    entries, groups, found = await asyncio.gather(
        visit.ask("get_blacklist"),
        visit.ask("get_blacklist_groups"),
        visit.ask("find_clients", text=search, limit=str(CHOICES)),
    )
    part = await part_of(visit.request, listed(entries))
    choices = found["clients"]
    return visit.render(
        "blacklist.html",
        part=part,
        groups=groups,
        uses=Counter(entry["group_id"] for entry in entries),
        search=search,
        searchable=search or found["total"] > CHOICES,
        choices=choices,
        others=found["total"] - len(choices),
        chosen=choices[0]["client_id"] if search and choices else "",  # Who looks for one does not mean all of them.
        client_names=await _names(visit, part.items),
        group_names={group["group_id"]: group["name"] for group in groups},
    )


async def _names(visit: PageRequest, entries: Sequence[Any]) -> dict[str, str]:
    """The names of the clients that entries are about, by their ids."""
    ids = {entry["client_id"] for entry in entries if entry["client_id"]}
    if not ids:
        return {}
    found = await visit.ask("find_clients", client_id=",".join(ids), limit=str(len(ids)))
    return {client["client_id"]: client["client_name"] for client in found["clients"]}
