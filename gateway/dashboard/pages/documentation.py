"""How machines and programs use the tenant's repository, in short."""

from aiohttp import web

from gateway.dashboard.page_request import PageRequest


async def show(visit: PageRequest) -> web.Response:
    """The page."""
    settings = (await visit.ask("server_information"))["settings"]
    return visit.render("documentation.html", settings=settings, base_url=visit.caller.base_url)
