"""The pages about the tenant as a whole: overview, users, settings and documentation."""

import asyncio

from aiohttp import web

from gateway.dashboard.page_request import PageRequest

RECENT = 5  # uploads and entries of the audit log on the overview


async def show_overview(page: PageRequest) -> web.Response:
    """The overview: usage, unassigned uploads and recent activity."""
    information, uploads, entries = await asyncio.gather(
        page.fetch("server_information"),
        page.fetch("get_finished_uploads"),
        page.fetch("get_audit_log", limit=str(RECENT)),
    )
    newest = sorted(uploads, key=lambda upload: str(upload["finished_at"]), reverse=True)
    return page.render(
        "overview.html",
        information=information,
        unassigned=len(uploads),
        uploads=newest[:RECENT],
        entries=entries,
        base_url=page.caller.base_url,
    )


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
