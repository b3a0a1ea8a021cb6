"""Tenants with rings and gates, and pages with releases that catalog_service does not have."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from gateway.dashboard.page_request import PageRequest
from tests.support.system.publishing import publish
from tests.support.system.seed import LONG_PASSWORD
from tests.support.system.services import Api


def replace_answers(monkeypatch: pytest.MonkeyPatch, **answers: Callable[[], Any]) -> None:
    """Let operations return these answers to pages, in place of those of the services."""
    fetch = PageRequest.fetch

    async def answer(self: PageRequest, operation: str, /, *values: str, **query: str) -> Any:
        return answers[operation]() if operation in answers else await fetch(self, operation, *values, **query)

    monkeypatch.setattr(PageRequest, "fetch", answer)


def replace_releases(monkeypatch: pytest.MonkeyPatch, rows: Sequence[dict[str, Any]]) -> None:
    """Let `find_releases` return these rows to pages."""
    replace_answers(monkeypatch, find_releases=lambda: {"releases": rows, "total": len(rows)})


async def set_policy(api: Api, rings: str, gates: Mapping[str, Any] | None = None) -> None:
    """Set the rings and gates of a tenant."""
    answer = await api.call("PATCH", "edit_settings", data={"rings": rings, "gates": json.dumps(gates or {})})
    assert answer.status == 200, answer.body


async def release_of(api: Api, uid: str) -> dict[str, Any]:
    answer = await api.call("GET", "get_release", uid)
    assert answer.status == 200, answer.body
    release: dict[str, Any] = answer.body
    return release


async def add_user(api: Api, username: str, role: str = "administrator") -> Api:
    """Add a user with a role. Returns the signed-in user."""
    form = {"username": username, "password": LONG_PASSWORD, "role": role}
    assert (await api.call("POST", "add_user", data=form)).status == 201
    return await api.signed_in(username, LONG_PASSWORD)


async def add_releases(api: Api, package_id: str) -> None:
    """Set three rings, and publish a version that may be approved and promoted, and one that is held."""
    await set_policy(api, "pilot,broad,everyone", {"everyone": {"approvals": 1}})
    await publish(api, package_id, "7.0")
    held = await publish(api, package_id, "7.1")
    assert (await api.call("POST", "hold_version", held.uid, data={"reason": "It fails."})).status == 200
