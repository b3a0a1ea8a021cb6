"""The settings that are the administrators' to choose, and the limits that are the operator's."""

from aiohttp import web

from gateway.dashboard.page_request import PageRequest


async def show(visit: PageRequest) -> web.Response:
    """The page."""
    return visit.render("settings.html", information=await visit.ask("server_information"), own_address=visit.caller.ip)
