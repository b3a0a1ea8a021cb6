"""The packages of a tenant: found by a text in them, sorted, a page at a time."""

from collections.abc import Mapping
from functools import partial
from urllib.parse import urlencode

from aiohttp import web

from gateway.dashboard.visits import Visit

PAGE = 50  # packages
ASKED = ("text", "active", "sort", "descending", "offset")


async def show(visit: Visit) -> web.Response:
    """The page."""
    asked = {name: visit.request.query.get(name, "") for name in ASKED}
    found = await visit.ask("find_packages", **asked, limit=str(PAGE))
    return visit.render(
        "packages.html",
        found=found,
        asked=asked,
        at=partial(_address, visit, asked),
        first=int(asked["offset"] or 0),
        page=PAGE,
    )


def _address(visit: Visit, asked: Mapping[str, str], **changes: object) -> str:
    """This page with other things asked for."""
    kept = {name: value for name, value in {**asked, **changes}.items() if value}
    return f"{visit.home}/packages{'?' if kept else ''}{urlencode(kept)}"
