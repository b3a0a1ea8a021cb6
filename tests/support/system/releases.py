"""Pages with releases that catalog_service does not have."""

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.dashboard.page_request import PageRequest


def replace_releases(monkeypatch: pytest.MonkeyPatch, rows: Sequence[dict[str, Any]]) -> None:
    """Let `find_releases` return these rows to pages, and `get_release` the one of the UID."""
    fetch = PageRequest.fetch

    async def answer(self: PageRequest, operation: str, /, *values: str, **query: str) -> Any:
        if operation == "find_releases":
            return {"releases": rows, "total": len(rows)}
        if operation == "get_release":
            return next({**row, "history": []} for row in rows if row["uid"] == values[0])
        return await fetch(self, operation, *values, **query)

    monkeypatch.setattr(PageRequest, "fetch", answer)
