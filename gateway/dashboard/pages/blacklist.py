"""The page of the blacklist: its entries and their groups."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.pagination import paginate_list

MAX_OPTIONS = 50  # clients in the form of a new entry


async def show(page: PageRequest) -> web.Response:
    """The page. The query's `client` is a search among the clients in the form of a new entry."""
    search = page.request.query.get("client", "").strip()
    entries, groups, matches = await asyncio.gather(
        page.fetch("get_blacklist"),
        page.fetch("get_blacklist_groups"),
        page.fetch("find_clients", text=search, limit=str(MAX_OPTIONS)),
    )
    part = await paginate_list(page.request, entries)
    options, total = matches["clients"], matches["total"]
    return page.render(
        "blacklist.html",
        part=part,
        groups=groups,
        uses=Counter(entry["group_id"] for entry in entries),
        search=search,
        searchable=search or total > MAX_OPTIONS,
        options=options,
        hidden_options=total - len(options),
        selected=options[0]["client_id"] if search and options else "",  # A search means one client, not all clients.
        client_names=await _client_names(page, part.items),
        group_names={group["group_id"]: group["name"] for group in groups},
    )


async def _client_names(page: PageRequest, entries: Sequence[Any]) -> dict[str, str]:
    """The names of the clients of entries, by their ids."""
    ids = {entry["client_id"] for entry in entries if entry["client_id"]}
    if not ids:
        return {}
    matches = await page.fetch("find_clients", client_id=",".join(ids), limit=str(len(ids)))
    return {client["client_id"]: client["client_name"] for client in matches["clients"]}
