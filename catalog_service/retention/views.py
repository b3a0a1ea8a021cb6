"""The response of `preview_retention`."""

from datetime import datetime
from typing import Any

import orjson

from catalog_service.model.releases import Reason
from catalog_service.releases.policy import RetentionRule
from catalog_service.retention.model import Preview, StoredVersion, reason_of


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
        "uid": version.uid,
        "package_id": version.package_id,
        "version": version.version,
        "channel": version.channel,
        "file_architect": version.architecture,
        "size": version.size,
        "published_at": version.published_at,
        **(reason_of(rule) if rule else Reason(("kept_again",))).members,
        **dates,
    }
