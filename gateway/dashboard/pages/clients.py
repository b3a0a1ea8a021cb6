"""The pages of the clients of a tenant, and of the blacklist: its entries and their groups."""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from aiohttp import web

from gateway.dashboard.page_request import (
    PageRequest,
    client_names_of,
    ids_that_fit,
    package_names_of,
    paginate_list,
    paginate_operation,
)

TOKEN_ID = re.compile("[0-9a-f]{16}")
FILTERS = {"state": ("enabled", "disabled"), "seen": ("day", "week", "month", "silent", "never")}


async def show_clients(page: PageRequest) -> web.Response:
    """The page. The query's `search` is a part of a name or address, or the end of a token.

    Its `state`, `seen`, `ring` and `enrolled_by` are those of `find_clients`; other values are left out.
    """
    query = page.request.query
    search = query.get("search", "").strip()
    information = await page.server_information()
    choices = {**FILTERS, "ring": information["settings"]["rings"]}
    filters = {name: query.get(name, "") if query.get(name) in values else "" for name, values in choices.items()}
    filters["enrolled_by"] = query.get("enrolled_by", "") if TOKEN_ID.fullmatch(query.get("enrolled_by", "")) else ""
    part = await paginate_operation(page, "find_clients", "clients", size=None, text=search, **filters)
    return page.render(
        "clients.html",
        information=information,
        search=search,
        filters=filters,
        is_filtered=bool(search or any(filters.values())),
        part=part,
        base_url=page.caller.base_url,
    )


async def show_blacklist(page: PageRequest) -> web.Response:
    """The page. The query's `client` is the name in the form of a new entry."""
    entries, groups = await asyncio.gather(page.fetch("get_blacklist"), page.fetch("get_blacklist_groups"))
    part = await paginate_list(page.request, entries)
    package_ids = dict.fromkeys(chain.from_iterable(listing["package_ids"] for listing in (*part.items, *groups)))
    shown_ids = ids_that_fit(package_ids)
    client_names, package_names = await asyncio.gather(
        _client_names(page, part.items), package_names_of(page, shown_ids)
    )
    return page.render(
        "blacklist.html",
        part=part,
        groups=groups,
        uses=Counter(entry["group_id"] for entry in entries),
        client_names=client_names,
        package_names=package_names or {},
        client_name=page.request.query.get("client", "").strip(),
        unknown_ids=set() if package_names is None else set(shown_ids) - package_names.keys(),
        group_names={group["group_id"]: group["name"] for group in groups},
    )


async def _client_names(page: PageRequest, entries: Sequence[Any]) -> dict[str, str]:
    return await client_names_of(page, {entry["client_id"] for entry in entries if entry["client_id"]})
