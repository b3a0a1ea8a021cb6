"""The operation of retention."""

import asyncio
from datetime import datetime
from typing import Any

import orjson
from aiohttp import web

from catalog_service.app_keys import RETENTION
from catalog_service.model.releases import Reason
from catalog_service.releases.gates import RetentionRule
from catalog_service.retention.plan import Preview, StoredVersion, reason_of
from common.http.forms import query_form
from common.http.middleware import caller_of

SHOWN = ("uid", "package_id", "version", "channel", "size", "published_at")
routes = web.RouteTableDef()


@routes.get("/{tenant_id}/preview_retention")
async def preview_retention(request: web.Request) -> web.Response:
    limit = query_form(request).integer("limit", default=0) or None
    preview = await request.app[RETENTION].preview(caller_of(request))
    body = await asyncio.to_thread(preview_of, preview, limit)  # It may have all versions of the tenant.
    return web.Response(body=body, content_type="application/json")


def preview_of(preview: Preview, limit: int | None) -> bytes:
    """Return what a run does, with at most `limit` rows in each list. `bytes` and the totals count all rows."""
    retired = [*preview.retired, *((version, None) for version in preview.resumed)]
    body = {
        "revision": preview.revision,
        "versions": [_row(version, rule) for version, rule in preview.expired[:limit]],
        "total": len(preview.expired),
        "bytes": sum(version.size for version, _ in preview.expired),
        "retired": [
            _row(version, rule, deleted_at=version.deleted_at if rule else None) for version, rule in retired[:limit]
        ],
        "retired_total": len(retired),
    }
    return orjson.dumps(body)


def _row(version: StoredVersion, rule: RetentionRule | None, **dates: datetime | None) -> dict[str, Any]:
    return {
        **{name: getattr(version, name) for name in SHOWN},
        "file_architect": version.architecture,
        **(reason_of(rule) if rule else Reason(("kept_again",))).members,
        **dates,
    }
