"""Pagination of long lists by the query parameter `page`."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from gateway.dashboard.page_request import PageRequest

PAGE_SIZE = 20  # items; a page of clients with all actions has 40 kB
MAX_PAGE = 1_000_000

# Returns at most `limit` items from an offset on, and the total: `(offset, limit)`.
FetchItems = Callable[[int, int], Awaitable[tuple[Sequence[Any], int]]]


@dataclass(frozen=True)
class ListPart:
    """The items `first` to `last` of `total`. An address is "" where there is no such part."""

    items: Sequence[Any]
    first: int
    total: int
    previous_url: str
    next_url: str

    @property
    def last(self) -> int:
        return self.first + len(self.items) - 1


async def paginate(request: web.Request, fetch: FetchItems, *, size: int | None = None) -> ListPart:
    """The part of a list that an address asks for, or the nearest existing part."""
    size, number = size or PAGE_SIZE, _page_number(request)
    items, total = await fetch((number - 1) * size, size)
    parts = max(1, -(-total // size))
    if number > parts:
        number = parts
        items, total = await fetch((number - 1) * size, size)
    previous_url, next_url = (str(request.rel_url.update_query(page=str(n))) for n in (number - 1, number + 1))
    first = (number - 1) * size + 1
    return ListPart(items, first, total, previous_url if number > 1 else "", next_url if number < parts else "")


async def paginate_operation(
    page: PageRequest, operation: str, name: str, *, size: int | None = None, **query: str
) -> ListPart:
    """The part of the list `name` in the response of an operation, which takes `offset` and `limit`."""

    async def fetch(offset: int, limit: int) -> tuple[Sequence[Any], int]:
        response = await page.fetch(operation, **query, offset=str(offset), limit=str(limit))
        return response[name], response["total"]

    return await paginate(page.request, fetch, size=size)


async def paginate_list(request: web.Request, items: Sequence[Any]) -> ListPart:
    """The part of a complete list that an address asks for."""

    async def fetch(offset: int, limit: int) -> tuple[Sequence[Any], int]:
        return items[offset : offset + limit], len(items)

    return await paginate(request, fetch)


def _page_number(request: web.Request) -> int:
    text = request.query.get("page", "")
    return min(max(int(text), 1), MAX_PAGE) if text.isascii() and text.isdigit() and len(text) < 10 else 1
