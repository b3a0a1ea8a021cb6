"""Gateways are told of every write of client_registry before it is answered, and of nothing else."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from common.auth.callers import Caller
from common.caching.tenant_version import TenantVersions
from common.redis import Redis, RedisError, open_redis
from gateway.operations import CLIENTS, OPERATIONS
from tests.support.factories import make_caller
from tests.support.services.registry import Registry, serving_registry

WRITES = {row.name for row in OPERATIONS if row.service == CLIENTS and row.audited}


@pytest.fixture(scope="module")
async def redis(redis_url: str) -> AsyncIterator["Redis"]:
    async with open_redis(redis_url) as client:
        yield client


async def stamp(redis: "Redis", caller: Caller) -> object:
    return await redis.get(f"stamp:{caller.tenant_id}")


async def test_every_write_moves_the_stamp_of_its_tenant_alone(registry: Registry, redis: "Redis") -> None:
    caller, other = make_caller(), make_caller()
    client = await registry.add_client(caller)
    await registry.add_client(other)
    group = await registry.call(
        caller, "POST", "add_blacklist_group", data={"name": "Games", "package_ids": "Game.One"}
    )
    entry = await registry.call(caller, "POST", "add_blacklist_entry", data={"package_ids": "Hidden.App"})
    writes: list[tuple[str, list[str], dict[str, Any]]] = [
        ("POST add_client", [], {"client_name": "pc-2"}),
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
    others = await stamp(redis, other)

    for write, segments, form in writes:
        before = await stamp(redis, caller)
        method, _, operation = write.partition(" ")
        answer = await registry.call(caller, method, operation, *segments, data=form)
        assert answer.status < 300, (write, answer.body)
        assert await stamp(redis, caller) != before, write

    assert await stamp(redis, other) == others


async def test_reading_moves_no_stamp(registry: Registry, redis: "Redis") -> None:
    caller = make_caller()
    client = await registry.add_client(caller)
    before = await stamp(redis, caller)

    await registry.identify(caller, client["auth_token"])
    await registry.hidden_from(caller, client["client_id"])
    for method, operation in (("GET", "get_clients"), ("GET", "get_blacklist"), ("POST", "client_version")):
        assert (await registry.call(caller, method, operation)).status == 200

    assert await stamp(redis, caller) == before


async def test_a_write_that_gateways_cannot_be_told_of_is_not_made(mongo_url: str) -> None:
    caller = make_caller()
    async with serving_registry(mongo_url, "redis://127.0.0.1:1/0") as alone:
        refused = await alone.call(caller, "POST", "add_client", data={"client_name": "pc-1"})

        assert (refused.status, refused.body["code"]) == (500, "dependency_unavailable")
        assert await alone.identify(caller, "x") is None  # Clients are known without it.
        assert (await alone.call(caller, "GET", "get_clients")).body == []


async def test_a_token_is_told_to_who_asked_for_it_though_redis_went_meanwhile(
    registry: Registry, redis: "Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise RedisError("away")

    caller = make_caller()
    monkeypatch.setattr(TenantVersions, "bump", away)

    client = await registry.add_client(caller)

    assert await registry.identify(caller, client["auth_token"]) == client["client_id"]
    assert await stamp(redis, caller) == ""  # Gateways remember nothing of this tenant for a while.
