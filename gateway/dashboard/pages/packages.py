"""The page of the packages of a tenant."""

from urllib.parse import urlencode

from aiohttp import web

from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.pagination import paginate_operation

PAGE_SIZE = 50  # packages
QUERY = ("text", "active", "sort", "descending")


async def show(page: PageRequest) -> web.Response:
    """The page. The query has the filter and the order of `find_packages`."""
    query = {name: page.request.query.get(name, "") for name in QUERY}

    def url_with(**changes: str) -> str:
        """The first part of this list with changes to its query."""
        changed = {name: value for name, value in {**query, **changes}.items() if value}
        return f"{page.home}/packages{'?' if changed else ''}{urlencode(changed)}"

    part = await paginate_operation(page, "find_packages", "packages", size=PAGE_SIZE, **query)
    return page.render("packages.html", part=part, query=query, url_with=url_with)
