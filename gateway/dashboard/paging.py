"""Long lists in parts: the query's `page` says which of them a page shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

SIZE = 20  # items of one part: a page of clients, with what can be done to each, has 40 kB


@dataclass(frozen=True)
class Part:
    """Some of a list's items: part `number` of `parts`, the first being 1, of `total` items."""

    items: Sequence[Any]
    number: int
    parts: int
    total: int
    before: str
    after: str


def part_of(request: web.Request, items: Sequence[Any]) -> Part:
    """The part that an address asks for; the nearest one there is for any other. `before` and `after` are addresses."""
    parts = max(1, -(-len(items) // SIZE))
    asked = request.query.get("page", "")
    number = min(max(int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else 1, 1), parts)
    before, after = (str(request.rel_url.update_query(page=str(other))) for other in (number - 1, number + 1))
    return Part(
        items[(number - 1) * SIZE : number * SIZE],
        number,
        parts,
        len(items),
        before if number > 1 else "",
        after if number < parts else "",
    )
