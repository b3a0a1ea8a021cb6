"""The overview: where the tenant stands, and what to do next."""

import asyncio

from aiohttp import web

from gateway.dashboard.page_request import PageRequest

RECENT = 5


async def show(visit: PageRequest) -> web.Response:
    """The page."""
    information, uploads, entries = await asyncio.gather(
        visit.ask("server_information"),
        visit.ask("get_finished_uploads"),
        visit.ask("get_audit_log", limit=str(RECENT)),
    )
    newest = sorted(uploads, key=lambda upload: str(upload["finished_at"]), reverse=True)
    return visit.render(
        "overview.html",
        information=information,
        waiting=len(uploads),
        uploads=newest[:RECENT],
        entries=entries,
        base_url=visit.caller.base_url,
    )
