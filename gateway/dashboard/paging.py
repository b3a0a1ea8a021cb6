"""Long lists in parts: the query's `page` says which of them a page shows."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

SIZE = 20  # items of one part: a page of clients, with what can be done to each, has 40 kB
LAST = 1_000_000  # No list has as many parts.

Find = Callable[[int, int], Awaitable[tuple[Sequence[Any], int]]]


@dataclass(frozen=True)
class Part:
    """Some of a list's items: those from `first` to `last` of `total`. `before` and `after` are addresses or ""."""

    items: Sequence[Any]
    first: int
    total: int
    before: str
    after: str

    @property
    def last(self) -> int:
        return self.first + len(self.items) - 1


async def part_of(request: web.Request, find: Find, *, size: int | None = None) -> Part:
    """The part that an address asks for; the nearest one there is for any other.

    `find` gives the items from an offset on, so many at most, and how many there are in all.
    """
    size, number = size or SIZE, _asked(request)
    items, total = await find((number - 1) * size, size)
    parts = max(1, -(-total // size))
    if number > parts:
        number = parts
        items, total = await find((number - 1) * size, size)
    before, after = (str(request.rel_url.update_query(page=str(other))) for other in (number - 1, number + 1))
    return Part(items, (number - 1) * size + 1, total, before if number > 1 else "", after if number < parts else "")


def listed(items: Sequence[Any]) -> Find:
    """Finds in a list that is there as a whole."""

    async def find(offset: int, limit: int) -> tuple[Sequence[Any], int]:
        return items[offset : offset + limit], len(items)

    return find


def _asked(request: web.Request) -> int:
    asked = request.query.get("page", "")
    return min(max(int(asked), 1), LAST) if asked.isascii() and asked.isdigit() and len(asked) < 10 else 1
