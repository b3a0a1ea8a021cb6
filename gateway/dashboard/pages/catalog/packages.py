"""The pages of the packages of a tenant and of retention, and the check of a new package or version."""

from urllib.parse import urlencode

from aiohttp import web

from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.pagination import paginate_list, paginate_operation

PAGE_SIZE = 50  # packages
PREVIEW_LIMIT = 500  # versions of each step
CHECKED_FIELDS = (
    *("package_id", "package_version", "file_type", "file_type_nested", "file_nested_path"),
    *("productcode", "upgradecode", "package_family_name", "package_name"),
)
QUERY = ("text", "active", "sort", "descending")


async def show_check(page: PageRequest) -> web.Response:
    """The reasons why winget would refuse or confuse the fields in the query, of a form for a package or version."""
    query = page.request.query
    fields = {name: query[name] for name in CHECKED_FIELDS if name in query}
    check = await page.fetch("check_version", **fields)
    return page.render("check.html", refusals=check["winget_refusals"], shared=check["shared_identities"])


async def show(page: PageRequest) -> web.Response:
    """The page. The query has the filter and the order of `find_packages`."""
    query = {name: page.request.query.get(name, "") for name in QUERY}

    def url_with(**changes: str) -> str:
        """The first part of this list with changes to its query."""
        changed = {name: value for name, value in {**query, **changes}.items() if value}
        return f"{page.home}/packages{'?' if changed else ''}{urlencode(changed)}"

    part = await paginate_operation(page, "find_packages", "packages", size=PAGE_SIZE, **query)
    return page.render("packages.html", part=part, query=query, url_with=url_with)


async def show_retention(page: PageRequest) -> web.Response:
    """The versions that are deleted next, then those that are hidden with the next run."""
    preview = await page.fetch("preview_retention", limit=str(PREVIEW_LIMIT))
    part = await paginate_list(page.request, [*preview["retired"], *preview["versions"]])
    is_cut = part.total < preview["total"] + preview["retired_total"]
    return page.render("retention.html", preview=preview, part=part, is_cut=is_cut)
