"""The page of the blacklist: its entries and their groups."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any
from urllib.parse import quote

from aiohttp import web

from common.errors import Problem
from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.pagination import paginate_list

MAX_NAMES = 100  # packages with their names; others are shown by their ids
MAX_ADDRESS = 6000  # characters of the ids in an address


async def show(page: PageRequest) -> web.Response:
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


async def package_names_of(page: PageRequest, package_ids: Iterable[str]) -> dict[str, str] | None:
    """The names of packages that exist, by their ids, for as many ids as fit an address; None if they are not known."""
    answer = await _find(page, "find_packages", "package_id", package_ids)
    return None if answer is None else {row["package_id"]: row["package_name"] for row in answer.get("packages", ())}


async def client_names_of(page: PageRequest, client_ids: Iterable[str]) -> dict[str, str]:
    """The names of clients that are known to exist, by their ids, for as many ids as fit an address."""
    answer = await _find(page, "find_clients", "client_id", client_ids) or {}
    return {row["client_id"]: row["client_name"] for row in answer.get("clients", ())}


async def _find(page: PageRequest, operation: str, name: str, values: Iterable[str]) -> Mapping[str, Any] | None:
    """The response for these ids: empty without ids, None if there is none. A page does not fail for want of names."""
    ids = ids_that_fit(values)
    if not ids:
        return {}
    try:
        answer: Mapping[str, Any] = await page.fetch(operation, **{name: ",".join(ids)}, limit=str(len(ids)))
    except Problem:
        return None  # The audit log has refused requests, with any text as an id.
    return answer


def ids_that_fit(values: Iterable[str]) -> list[str]:
    """The first ids, at most `MAX_NAMES`, that fit the address of a request together."""
    ids = list(values)
    sizes = accumulate(len(quote(value)) + len("%2C") for value in ids)
    return [value for value, size in zip(ids, sizes, strict=True) if size <= MAX_ADDRESS][:MAX_NAMES]


async def _client_names(page: PageRequest, entries: Sequence[Any]) -> dict[str, str]:
    return await client_names_of(page, {entry["client_id"] for entry in entries if entry["client_id"]})
