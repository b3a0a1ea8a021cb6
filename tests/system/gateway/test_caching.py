"""Gateways cache responses. A change through one gateway is visible at all gateways after its response."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web

from common.auth.internal_tokens import HIDDEN, hidden_digest
from common.http.middleware import REVISION_HEADER, json_response
from common.redis import Redis, open_redis
from tests.support.system.gateways import SERVICES, at_gateway, run_gateway
from tests.support.system.publishing import add_package, catalog, publish
from tests.support.system.services import Api, Services
from tests.support.system.stub_service import serve_handler

ETAG = '"7-identity"'


@pytest.fixture
async def elsewhere(services: Services, redis_url: str, tenant: Api) -> AsyncIterator[Api]:
    """The same tenant at another gateway."""
    async with run_gateway(services, redis_url) as address:
        yield at_gateway(tenant, address)


async def added(api: Api, name: str = "pc-1") -> dict[str, str]:
    client: dict[str, str] = (await api.call("POST", "add_client", data={"client_name": name})).body
    return client


async def status(api: Api, token: str = "") -> int:
    """The status of a request without a session."""
    data = {"auth_token": token} if token else None
    return (await api.anonymous().call("POST", "client_version", data=data)).status


async def test_a_changed_setting_takes_effect_at_once(services: Services, tenant: Api, elsewhere: Api) -> None:
    for value, expected in (("true", 401), ("false", 200), ("true", 401)):
        changed = await tenant.call("PATCH", "edit_settings", data={"client_authentication": value})
        assert changed.status == 200
        assert [await status(elsewhere), await status(tenant)] == [expected] * 2
    for networks, expected in ((("192.0.2.0/24",), 403), ((), 401)):
        await services.operator.tenants.edit(tenant.tenant_id, {"allowed_networks": networks})
        assert [await status(elsewhere), await status(tenant)] == [expected] * 2


async def test_a_created_or_deleted_tenant_takes_effect_at_once(services: Services, elsewhere: Api) -> None:
    unborn = replace(elsewhere, base_url=f"{elsewhere.base_url}-2", tenant_id=f"{elsewhere.tenant_id}-2")
    assert await status(unborn) == 404
    await services.operator.tenants.create(replace(await services.operator.tenants.find(elsewhere.tenant_id),
                                                   tenant_id=unborn.tenant_id))  # fmt: skip
    assert await status(unborn) == 200
    await services.operator.tenants.delete(unborn.tenant_id)
    assert await status(unborn) == 404


async def test_a_rotated_or_deleted_client_token_is_rejected_at_once(tenant: Api, elsewhere: Api) -> None:
    await tenant.call("PATCH", "edit_settings", data={"client_authentication": "true"})
    client = await added(tenant)
    old, client_id = client["auth_token"], client["client_id"]
    assert await status(elsewhere, old) == 200

    new = (await tenant.call("POST", "rotate_client_token", client_id)).body["auth_token"]
    assert [await status(elsewhere, token) for token in (old, new)] == [401, 200]
    for enabled, expected in (("0", 401), ("1", 200)):
        await tenant.call("PATCH", "edit_client", client_id, data={"enabled": enabled})
        assert await status(elsewhere, new) == expected
    await tenant.call("DELETE", "delete_client", client_id, new)
    assert await status(elsewhere, new) == 401


async def test_a_session_ended_at_one_gateway_ends_at_all(tenant: Api, elsewhere: Api) -> None:
    token = tenant.headers["Authorization"].removeprefix("Bearer ")
    for _ in range(3):
        assert (await elsewhere.call("GET", "test")).status == 200

    await tenant.anonymous().call("POST", "logout", data={"token": token})

    assert (await elsewhere.call("GET", "test")).status == 401


async def test_a_blacklist_entry_takes_effect_at_once(tenant: Api, elsewhere: Api) -> None:
    for name in ("Seen.App", "Hidden.App"):
        await add_package(tenant, name)
    token = (await added(tenant))["auth_token"]
    for _ in range(2):
        assert len(await catalog(elsewhere.anonymous(), data={"auth_token": token})) == 2

    entry = await tenant.call("POST", "add_blacklist_entry", data={"package_ids": "Hidden.App"})
    assert set(await catalog(elsewhere.anonymous(), data={"auth_token": token})) == {"Seen.App"}
    assert len(await catalog(elsewhere.anonymous())) == 2

    await tenant.call("DELETE", "delete_blacklist_entry", entry.body["entry_id"])
    assert len(await catalog(elsewhere.anonymous(), data={"auth_token": token})) == 2


async def test_a_client_cannot_choose_its_hidden_packages(tenant: Api) -> None:
    for name in ("Seen.App", "Hidden.App"):
        await add_package(tenant, name)
    token = (await added(tenant))["auth_token"]
    await tenant.call("POST", "add_blacklist_entry", data={"package_ids": "Hidden.App"})
    client = tenant.anonymous()

    for query in ({}, {"include_disabled": "False"}):  # The second is forwarded.
        assert set(await catalog(client, data={"auth_token": token}, params=query, headers={HIDDEN: ""})) == {
            "Seen.App"
        }


async def test_the_server_information_shows_each_change_at_once(tenant: Api, elsewhere: Api) -> None:
    async def shown() -> tuple[int, bool]:
        first, second = [(await api.call("GET", "server_information")).body for api in (elsewhere, tenant)]
        assert first == second
        return first["clients"], first["settings"]["strict_installers"]

    assert await shown() == (0, False)
    client = await added(tenant)
    assert await shown() == (1, False)
    await tenant.call("PATCH", "edit_settings", data={"strict_installers": "true"})
    assert await shown() == (1, True)
    await tenant.call("DELETE", "delete_client", client["client_id"], client["auth_token"])
    assert await shown() == (0, True)


async def test_a_published_release_is_latest_at_once(tenant: Api, elsewhere: Api) -> None:
    for version in ("1.0.0.0", "2.0.0.0"):
        await tenant.call("POST", "publish_client", data={"version": version})
        assert (await elsewhere.call("POST", "client_version")).body == {"Version": version}


async def test_a_changed_catalog_is_shown_at_once(tenant: Api, elsewhere: Api) -> None:
    async def shown() -> tuple[dict[str, object], object]:
        """The names of packages and the versions of one at the other gateway, requested twice so they are cached."""
        before, now = [await catalog(elsewhere) for _ in range(2)]
        assert before == now
        first, second = [await elsewhere.call("GET", "get_package_versions", "An.App") for _ in range(2)]
        assert first.body == second.body or second.status != 200
        versions = [row["VERSION"] for row in second.body] if second.status == 200 else second.body["code"]
        return {name: package["PACKAGE_NAME"] for name, package in now.items()}, versions

    assert await shown() == ({}, "package_not_found")
    await add_package(tenant, "An.App", package_name="One")
    assert await shown() == ({"An.App": "One"}, [])
    await tenant.call("PATCH", "edit_package", "An.App", data={"package_name": "Two"})
    version = await publish(tenant, "An.App", "1.0")
    await publish(tenant, "An.App", "2.0")
    assert await shown() == ({"An.App": "Two"}, ["2.0", "1.0"])
    await tenant.call("DELETE", "delete_package_version", "An.App", data={"versions_uids": version.uid})
    assert await shown() == ({"An.App": "Two"}, ["2.0"])
    await tenant.call("PATCH", "set_package_active", "An.App", data={"package_active": "0"})
    assert await shown() == ({}, ["2.0"])
    await tenant.call("DELETE", "delete_package", "An.App")
    assert await shown() == ({}, "package_not_found")


ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "find_release_policy": {"rings": [], "ring_rules": []},
    "find_roles": {"roles": ["viewer"]},
    "identify_client": {"client_id": "c1", "ring": ""},
    "hidden_packages": {"package_ids": ["Hidden.App"]},
    "client_version": {"Version": "1.2.3.4"},
}


@dataclass
class CountingServices:
    """A stub of all services that counts its requests."""

    asked: Counter[str] = field(default_factory=Counter)
    settled: bool = True

    async def answer(self, request: web.Request) -> web.StreamResponse:
        _, tenant_id, operation, *_ = request.path.split("/")
        self.asked[operation] += 1
        match operation:
            case "find_tenant":
                settings = {"client_authentication": True, "allowed_networks": [], "storage_quota": None}
                return json_response(
                    {"tenant_id": tenant_id, "max_clients": None, "version_key": "version", **settings}
                )
            case "find_roles" | "identify_client" | "hidden_packages" | "client_version" | "find_release_policy":
                return json_response(ANSWERS[operation])
            case "get_package_versions" | "winget":
                return web.json_response([], headers={REVISION_HEADER: "7"} if self.settled else None)
        same = request.headers.get("If-None-Match") == ETAG
        headers = {"ETag": ETAG, HIDDEN: hidden_digest(["Hidden.App"])}
        return web.Response(status=304 if same else 200, body=None if same else b"[]" * 100_000, headers=headers)


async def scripts(redis: "Redis") -> int:
    """The number of scripts that Redis has run."""
    statistics = await redis.info("commandstats")
    return sum(int(statistics[name]["calls"]) for name in ("cmdstat_evalsha", "cmdstat_eval") if name in statistics)


async def test_a_cached_answer_costs_one_redis_call_and_no_service(
    services: Services, redis_url: str, tenant: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.caching.package_responses.MAX_AGE", 60.0)
    monkeypatch.setattr("gateway.auth.directories.TENANT_MAX_AGE", 60.0)
    fellows = CountingServices()
    async with (
        serve_handler(fellows.answer) as address,
        open_redis(redis_url) as redis,
        run_gateway(services, redis_url, **{f"{name}_url": address for name in SERVICES}) as before,
    ):
        api = at_gateway(tenant, before)
        client = {"data": {"auth_token": "a token"}}
        for _ in range(2):
            assert (await api.call("GET", "test")).status == 200
            whole = await api.anonymous().call("POST", "get_packages", **client)
            version = await api.anonymous().call("POST", "client_version", **client)
            assert (await api.call("GET", "get_package_versions", "An.App")).body == []
        requests, ran = fellows.asked.copy(), await scripts(redis)

        for _ in range(5):
            assert (await api.call("GET", "test")).status == 200
            assert (await api.call("GET", "get_package_versions", "An.App")).body == []
            again = await api.anonymous().call("POST", "get_packages", **client)
            known = await api.anonymous().call("POST", "get_packages", headers={"If-None-Match": ETAG}, **client)
            assert (again.status, again.body, known.status, known.body) == (200, whole.body, 304, b"")
            assert known.headers["ETag"] == again.headers["ETag"] == ETAG

        assert await scripts(redis) - ran == 20
    assert version.body == {"Version": "1.2.3.4"}
    assert fellows.asked - requests == Counter()
    assert set(requests.values()) <= {1, 2}


async def test_versions_are_not_cached_during_a_change(services: Services, redis_url: str, tenant: Api) -> None:
    fellows = CountingServices(settled=False)
    async with (
        serve_handler(fellows.answer) as address,
        run_gateway(services, redis_url, catalog_service_url=address) as before,
    ):
        api = at_gateway(tenant, before)
        for _ in range(3):
            assert (await api.call("GET", "get_package_versions", "An.App")).status == 200
    assert fellows.asked["get_package_versions"] == 3


async def test_winget_without_a_version_header_shares_the_first_contract(
    services: Services, redis_url: str, tenant: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.caching.package_responses.MAX_AGE", 60.0)
    fellows = CountingServices()
    async with (
        serve_handler(fellows.answer) as address,
        run_gateway(services, redis_url, catalog_service_url=address) as before,
    ):
        api = at_gateway(tenant, before)
        for headers in ({}, {}, {"Version": "1.0.0"}, {"Version": ""}):
            assert (await api.call("GET", "winget", "packageManifests", "An.App", headers=headers)).body == []
            assert (await api.call("POST", "winget", "manifestSearch", json={}, headers=headers)).body == []
        assert fellows.asked["winget"] == 2
        await api.call("GET", "winget", "packageManifests", "An.App", headers={"Version": "1.12.0"})
    assert fellows.asked["winget"] == 3
