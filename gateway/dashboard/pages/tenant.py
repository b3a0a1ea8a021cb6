"""The pages about the tenant as a whole: users, settings and documentation."""

from aiohttp import web

from gateway.dashboard.page_request import PageRequest


async def show_users(page: PageRequest) -> web.Response:
    """The administrators of the tenant."""
    return page.render("users.html", users=await page.fetch("get_users"))


async def show_settings(page: PageRequest) -> web.Response:
    """The settings of the administrators, and the limits of the operator."""
    return page.render("settings.html", information=await page.fetch("server_information"), own_address=page.caller.ip)


async def show_documentation(page: PageRequest) -> web.Response:
    """The commands for machines, pipelines and programs."""
    settings = (await page.fetch("server_information"))["settings"]
    return page.render("documentation.html", settings=settings, base_url=page.caller.base_url)
