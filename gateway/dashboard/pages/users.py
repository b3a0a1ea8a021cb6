"""The administrators of the tenant."""

from aiohttp import web

from gateway.dashboard.page_request import PageRequest


async def show(visit: PageRequest) -> web.Response:
    """The page."""
    return visit.render("users.html", users=await visit.ask("get_users"))
