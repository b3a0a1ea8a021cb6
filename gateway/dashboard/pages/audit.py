"""The page of the audit log, newest entries first."""

from aiohttp import web

from gateway.dashboard.page_request import PageRequest
from gateway.operations import OPERATIONS

PAGE_SIZE = 50  # entries
MAX_USER, MAX_OPERATION = 128, 64  # characters
SESSION_OPERATIONS = ("login", "logout")


async def show(page: PageRequest) -> web.Response:
    """The page. The query has `user`, `operation` and `before` of `get_audit_log`."""
    query = page.request.query
    user = query.get("user", "").strip()[:MAX_USER]
    operation = query.get("operation", "").strip()[:MAX_OPERATION]
    before = query.get("before", "")
    entries = await page.fetch("get_audit_log", limit=str(PAGE_SIZE + 1), before=before, user=user, operation=operation)
    return page.render(
        "audit.html",
        entries=entries[:PAGE_SIZE],
        older_url=_url(page, before=str(entries[PAGE_SIZE - 1]["sequence"])) if len(entries) > PAGE_SIZE else "",
        newest_url=_url(page, before="") if before else "",
        operations=sorted({row.name for row in OPERATIONS if row.audited} | set(SESSION_OPERATIONS)),
        user=user,
        operation=operation,
    )


def _url(page: PageRequest, *, before: str) -> str:
    return str(page.request.rel_url.update_query(before=before))
