"""The page of the audit log, newest entries first."""

import asyncio
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.pages.blacklist import client_names_of, package_names_of
from gateway.forwarding.audit import LEFT_OUT
from gateway.operations import OPERATIONS

PAGE_SIZE = 20  # entries
MAX_USER, MAX_OPERATION = 128, 64  # characters
OTHER_OPERATIONS = ("login", "logout", LEFT_OUT)
OUTCOMES = ("done", "refused")
# Targets without a meaning for readers. The page shows them on request.
IDS = ("uid", "uids", "client_id", "token_id", "entry_id", "group_id", "group", "sha256", "server_filename", "file_id")


async def show(page: PageRequest) -> web.Response:
    """The page. The query has `user`, `operation`, `outcome` and `before` of `get_audit_log`.

    Its `first` and `last` are dates in UTC, both included. A date that cannot be read is left out.
    """
    query = page.request.query
    filters = {
        "user": query.get("user", "").strip()[:MAX_USER],
        "operation": query.get("operation", "").strip()[:MAX_OPERATION],
        "outcome": query.get("outcome", "") if query.get("outcome") in OUTCOMES else "",
    }
    first, last = (_date(query.get(name, "")) for name in ("first", "last"))
    times = {"since": _start_of(first) if first else "", "until": _start_of(last, days=1) if last else ""}
    before, selection = query.get("before", ""), {**filters, **times}
    entries = await page.fetch("get_audit_log", limit=str(PAGE_SIZE + 1), before=before, **selection)
    shown = entries[:PAGE_SIZE]
    client_names, package_names = await asyncio.gather(
        client_names_of(page, _targets(shown, "client_id")),
        package_names_of(page, _targets(shown, "package_id", "package_ids")),
    )
    sent = {name: value for name, value in selection.items() if value}
    return page.render(
        "audit.html",
        entries=shown,
        client_names=client_names,
        package_names=package_names or {},
        older_url=_url(page, before=str(entries[PAGE_SIZE - 1]["sequence"])) if len(entries) > PAGE_SIZE else "",
        newest_url=_url(page, before="") if before else "",
        download_url=f"{page.home}/operations/get_audit_log?{urlencode({'format': 'jsonl', **sent})}",
        ids=IDS,
        operations=sorted({row.name for row in OPERATIONS if row.audited} | set(OTHER_OPERATIONS)),
        filters={**filters, "first": first or "", "last": last or ""},
    )


def _targets(entries: list[dict[str, Any]], *names: str) -> list[str]:
    """The different values of targets; a list has commas between its values."""
    texts = [entry["target"].get(name, "") for entry in entries for name in names]
    return list(dict.fromkeys(value for text in texts for value in text.split(",") if value))


def _date(text: str) -> date | None:
    with suppress(ValueError):
        return date.fromisoformat(text)
    return None


def _start_of(day: date, *, days: int = 0) -> str:
    with suppress(OverflowError):
        return datetime.combine(day + timedelta(days=days), time(), UTC).isoformat()
    return ""


def _url(page: PageRequest, *, before: str) -> str:
    return str(page.request.rel_url.update_query(before=before))
