"""Every write of client_registry invalidates the gateways' caches before its response; nothing else does."""

from typing import Any

import pytest

from common.auth.internal_tokens import Caller
from common.redis import Redis, RedisError, TenantVersions
from gateway.operations import CLIENTS, OPERATIONS
from tests.support.factories import make_caller
from tests.support.services.registry import Registry, serving_registry

WRITES = {row.name for row in OPERATIONS if row.service == CLIENTS and row.audited}


async def tenant_version(redis: "Redis", caller: Caller) -> object:
    return await redis.get(f"stamp:{caller.tenant_id}")


async def test_every_write_changes_the_version_of_its_tenant_only(registry: Registry, redis: "Redis") -> None:
    caller, other = make_caller(token_id="0123456789abcdef"), make_caller()
    client = await registry.add_client(caller)
    await registry.add_client(other)
    group = await registry.call(
        caller, "POST", "add_blacklist_group", data={"name": "Games", "package_ids": "Game.One"}
    )
    entry = await registry.call(caller, "POST", "add_blacklist_entry", data={"package_ids": "Hidden.App"})
    writes: list[tuple[str, list[str], dict[str, Any]]] = [
        ("POST add_client", [], {"client_name": "pc-2"}),
        ("POST enroll_client", [], {"client_name": "pc-4"}),
        ("PATCH edit_client", [client["client_id"]], {"enabled": "0"}),
        ("POST add_blacklist_group", [], {"name": "More", "package_ids": "Game.Two"}),
        ("DELETE delete_blacklist_group", [group.body["group_id"]], {}),
        ("POST add_blacklist_entry", [], {"package_ids": "Hidden.Too"}),
        ("DELETE delete_blacklist_entry", [entry.body["entry_id"]], {}),
        ("POST publish_client", [], {"version": "1.2.3.4"}),
        ("DELETE delete_client", [client["client_id"], client["auth_token"]], {}),
        ("POST rotate_client_token", [(await registry.add_client(caller, "pc-3"))["client_id"]], {}),
    ]
    assert {write.partition(" ")[2] for write, *_ in writes} == WRITES
    others = await tenant_version(redis, other)

    for write, segments, form in writes:
        before = await tenant_version(redis, caller)
        method, _, operation = write.partition(" ")
        answer = await registry.call(caller, method, operation, *segments, data=form)
        assert answer.status < 300, (write, answer.body)
        assert await tenant_version(redis, caller) != before, write

    assert await tenant_version(redis, other) == others


async def test_reading_changes_no_tenant_version(registry: Registry, redis: "Redis") -> None:
    caller = make_caller()
    client = await registry.add_client(caller)
    before = await tenant_version(redis, caller)

    await registry.identify(caller, client["auth_token"])
    await registry.hidden_from(caller, client["client_id"])
    for method, operation in (("GET", "get_clients"), ("GET", "get_blacklist"), ("POST", "client_version")):
        assert (await registry.call(caller, method, operation)).status == 200

    assert await tenant_version(redis, caller) == before


async def test_a_write_without_notified_gateways_is_not_made(mongo_url: str) -> None:
    caller = make_caller()
    async with serving_registry(mongo_url, "redis://127.0.0.1:1/0") as alone:
        refused = await alone.call(caller, "POST", "add_client", data={"client_name": "pc-1"})

        assert (refused.status, refused.body["code"]) == (500, "dependency_unavailable")
        assert await alone.identify(caller, "x") is None  # Identification does not need it.
        assert (await alone.call(caller, "GET", "get_clients")).body == []


async def test_a_new_client_gets_its_token_if_redis_fails_meanwhile(
    registry: Registry, redis: "Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RedisError("away")

    caller = make_caller()
    monkeypatch.setattr(TenantVersions, "_move", fail)

    client = await registry.add_client(caller)

    assert await registry.identify(caller, client["auth_token"]) == client["client_id"]
    assert await tenant_version(redis, caller) == ""  # Gateways cache nothing of this tenant for a while.
