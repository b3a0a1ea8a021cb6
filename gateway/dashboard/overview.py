"""The overview: where the tenant stands, and what to do next."""

from aiohttp import web

from gateway.dashboard.visits import Visit


async def show(visit: Visit) -> web.Response:
    """The page."""
    return visit.render("overview.html", information=await visit.ask("server_information"))
