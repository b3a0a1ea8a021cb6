"""The page of the blacklist: its entries and their groups."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from aiohttp import web

from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.pagination import paginate_list

MAX_NAMES = 100  # packages with their names; others are shown by their ids


async def show(page: PageRequest) -> web.Response:
    """The page. The query's `client` is the name in the form of a new entry."""
    entries, groups = await asyncio.gather(page.fetch("get_blacklist"), page.fetch("get_blacklist_groups"))
    part = await paginate_list(page.request, entries)
    package_ids = dict.fromkeys(chain.from_iterable(listing["package_ids"] for listing in (*part.items, *groups)))
    shown_ids = list(package_ids)[:MAX_NAMES]
    client_names, package_names = await asyncio.gather(
        _client_names(page, part.items), package_names_of(page, shown_ids)
    )
    return page.render(
        "blacklist.html",
        part=part,
        groups=groups,
        uses=Counter(entry["group_id"] for entry in entries),
        client_names=client_names,
        package_names=package_names,
        client_name=page.request.query.get("client", "").strip(),
        unknown_ids=set(shown_ids) - package_names.keys(),
        group_names={group["group_id"]: group["name"] for group in groups},
    )


async def package_names_of(page: PageRequest, package_ids: Iterable[str]) -> dict[str, str]:
    """The names of at most `MAX_NAMES` packages that exist, by their ids."""
    ids = list(package_ids)[:MAX_NAMES]
    if not ids:
        return {}
    found = await page.fetch("find_packages", package_id=",".join(ids), limit=str(len(ids)))
    return {package["package_id"]: package["package_name"] for package in found["packages"]}


async def client_names_of(page: PageRequest, client_ids: Iterable[str]) -> dict[str, str]:
    """The names of at most `MAX_NAMES` clients that exist, by their ids."""
    ids = list(client_ids)[:MAX_NAMES]
    if not ids:
        return {}
    matches = await page.fetch("find_clients", client_id=",".join(ids), limit=str(len(ids)))
    return {client["client_id"]: client["client_name"] for client in matches["clients"]}


async def _client_names(page: PageRequest, entries: Sequence[Any]) -> dict[str, str]:
    return await client_names_of(page, {entry["client_id"] for entry in entries if entry["client_id"]})
