"""The packages of a tenant: found by a text in them, sorted, a page at a time."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.paging import part_of

PAGE = 50  # packages
ASKED = ("text", "active", "sort", "descending")


async def show(visit: PageRequest) -> web.Response:
    """The page."""
    asked = {name: visit.request.query.get(name, "") for name in ASKED}

    async def find(offset: int, limit: int) -> tuple[Sequence[Any], int]:
        found = await visit.ask("find_packages", **asked, offset=str(offset), limit=str(limit))
        return found["packages"], found["total"]

    return visit.render(
        "packages.html",
        part=await part_of(visit.request, find, size=PAGE),
        asked=asked,
        at=partial(_address, visit, asked),
    )


def _address(visit: PageRequest, asked: Mapping[str, str], **changes: str) -> str:
    """The first part of this page with other things asked for."""
    kept = {name: value for name, value in {**asked, **changes}.items() if value}
    return f"{visit.home}/packages{'?' if kept else ''}{urlencode(kept)}"
