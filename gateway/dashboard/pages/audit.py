"""The audit log, newest first."""

from aiohttp import web

from gateway.dashboard.page_request import PageRequest
from gateway.operations import OPERATIONS

SIZE = 50  # entries of a page
USER_LIMIT, OPERATION_LIMIT = 128, 64  # characters that the interface takes
SESSIONS = ("login", "logout")


async def show(visit: PageRequest) -> web.Response:
    """The page; `user`, `operation` and `before` of the query are those of `get_audit_log`."""
    query = visit.request.query
    user = query.get("user", "").strip()[:USER_LIMIT]
    operation = query.get("operation", "").strip()[:OPERATION_LIMIT]
    before = query.get("before", "")
    entries = await visit.ask("get_audit_log", limit=str(SIZE + 1), before=before, user=user, operation=operation)
    return visit.render(
        "audit.html",
        entries=entries[:SIZE],
        older=_address(visit, before=str(entries[SIZE - 1]["sequence"])) if len(entries) > SIZE else "",
        newest=_address(visit, before="") if before else "",
        operations=sorted({row.name for row in OPERATIONS if row.audited} | set(SESSIONS)),
        user=user,
        operation=operation,
    )


def _address(visit: PageRequest, *, before: str) -> str:
    return str(visit.request.rel_url.update_query(before=before))
