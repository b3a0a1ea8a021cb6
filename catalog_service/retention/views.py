"""The response of `preview_retention`."""

from datetime import datetime
from typing import Any

from catalog_service.releases.policy import RetentionRule
from catalog_service.retention.model import Preview, StoredVersion, reason_of


def preview_of(preview: Preview) -> dict[str, Any]:
    """Return what a run does. `bytes` is the size of the files of `versions`."""
    retired = [_row(version, rule, deleted_at=version.deleted_at) for version, rule in preview.retired]
    return {
        "revision": preview.revision,
        "versions": [_row(version, rule) for version, rule in preview.expired],
        "bytes": sum(version.size for version, _ in preview.expired),
        "retired": [*retired, *(_row(version, None, deleted_at=None) for version in preview.resumed)],
    }


def _row(version: StoredVersion, rule: RetentionRule | None, **dates: datetime | None) -> dict[str, Any]:
    # The rule is for pages, which say the reason in the language of the user.
    return {
        "uid": version.uid,
        "package_id": version.package_id,
        "version": version.version,
        "channel": version.channel,
        "file_architect": version.architecture,
        "size": version.size,
        "published_at": version.published_at,
        "reason": reason_of(rule) if rule else "It is kept again, and the next run offers it again.",
        "rule": rule.model_dump() if rule else None,
        **dates,
    }
