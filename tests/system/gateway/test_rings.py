"""Every caller gets the answer for the own ring, from a cache or not, at every gateway."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import jwt
import pytest
from aiohttp import web

from common.auth.internal_tokens import HIDDEN, INTERNAL_TOKEN, Kind
from common.http.middleware import REVISION_HEADER
from common.tenants import ALL_RINGS
from gateway.operations import CATALOG, OPERATIONS, Access
from tests.support.system.gateways import at_gateway, run_gateway
from tests.support.system.services import Api, Services, bearer
from tests.support.system.stub_service import serve_handler

RINGS = ("pilot", "broad", "everyone")
WINGET_TOKEN = "Windows-Package-Manager"
# A request of each cached operation.
REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "get_packages": {"method": "POST"},
    "get_packages?include_disabled=true": {"method": "POST"},
    "winget/manifestSearch": {"method": "POST", "json": {"FetchAllManifests": True}},
    "winget/packageManifests/An.App": {"method": "GET"},
}


@dataclass
class StubCatalogService:
    """catalog_service with a policy for all tenants; it accepts every name."""

    rings: Sequence[str] = RINGS
    ring_rules: Sequence[Mapping[str, str]] = ()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        match request.path.split("/")[2]:
            case "find_release_policy":
                return web.json_response({"rings": self.rings, "ring_rules": self.ring_rules})
            case "check_names":
                return web.json_response({})
        return answer_with_ring(request)


def answer_with_ring(request: web.Request) -> web.StreamResponse:
    """The body is the ring in the internal token, `*` for a caller who sees all rings."""
    claims = jwt.decode(request.headers[INTERNAL_TOKEN], options={"verify_signature": False})
    ring = ALL_RINGS if claims["kind"] == Kind.ADMINISTRATOR else claims["ring"]
    headers = {"ETag": f'"{ring}"', HIDDEN: "", REVISION_HEADER: "1"}
    return web.json_response([ring], headers=headers)


@dataclass(frozen=True)
class Gateways:
    """A tenant at two gateways that share a catalog_service."""

    tenant: Api
    elsewhere: Api
    catalog_service: StubCatalogService

    async def add_client(self, name: str, ring: str = "") -> tuple[str, Mapping[str, str]]:
        """The id of a new client in a ring, and its headers."""
        added = (await self.tenant.call("POST", "add_client", data={"client_name": name})).body
        if ring:
            await self.move(added["client_id"], ring)
        return added["client_id"], {"Auth-Token": added["auth_token"], WINGET_TOKEN: added["auth_token"]}

    async def move(self, client_id: str, ring: str) -> None:
        answer = await self.tenant.call("PATCH", "edit_client", client_id, data={"ring": ring})
        assert answer.status == 200, answer.body

    async def rings(self, headers: Mapping[str, str]) -> set[str]:
        """The rings in all answers to a caller, twice from each gateway."""
        order = [(api, path) for api in (self.tenant, self.elsewhere) for path in REQUESTS] * 2
        return set(await asyncio.gather(*(ring_of_answer(api, path, headers) for api, path in order)))


async def ring_of_answer(api: Api, path: str, headers: Mapping[str, str]) -> str:
    request = dict(REQUESTS[path])
    if token := headers.get("Auth-Token"):
        request = {"data": {"auth_token": token}, **request} if path.startswith("get_packages") else request
    async with api.session.request(url=f"{api.base_url}/{path}", headers=headers, **request) as response:
        text = await response.text()
        assert response.status == 200, (path, response.status, text)
        [ring] = json.loads(text)
        return str(ring)


@pytest.fixture
async def gateways(services: Services, redis_url: str) -> AsyncIterator[Gateways]:
    tenant, stub = await services.tenant(), StubCatalogService()
    async with (
        serve_handler(stub.answer) as catalog_service,
        run_gateway(services, redis_url, catalog_service_url=catalog_service) as first,
        run_gateway(services, redis_url, catalog_service_url=catalog_service) as second,
    ):
        yield Gateways(at_gateway(tenant, first), at_gateway(tenant, second), stub)


def test_the_requests_cover_each_operation_of_clients() -> None:
    of_clients = [row for row in OPERATIONS if row.access in {Access.CLIENT, Access.PACKAGE_MANAGER}]
    names = {row.name for row in of_clients if row.service == CATALOG}
    assert {path.partition("?")[0].removesuffix("/An.App") for path in REQUESTS} == names


async def test_concurrent_callers_get_the_answers_of_their_own_ring(gateways: Gateways) -> None:
    token = await gateways.tenant.call("POST", "add_token", data={"name": "pipeline", "role": "viewer"})
    callers: list[tuple[str, Mapping[str, str]]] = [
        ("", {}),
        ("", {"Auth-Token": "unknown", WINGET_TOKEN: "unknown"}),
        (ALL_RINGS, gateways.tenant.headers),
        (ALL_RINGS, bearer(token.body["token"])),
        ("pilot", (await gateways.add_client("pc-1", "pilot"))[1]),
        ("pilot", (await gateways.add_client("pc-2", "pilot"))[1]),
        ("broad", (await gateways.add_client("pc-3", "broad"))[1]),
        ("", (await gateways.add_client("pc-4", "everyone"))[1]),
        ("", (await gateways.add_client("pc-5"))[1]),
    ]
    apis = (gateways.tenant, gateways.elsewhere)
    expected = [(ring, headers, api, path) for ring, headers in callers for path in REQUESTS for api in apis]
    for seed in range(4):
        Random(seed).shuffle(expected)  # noqa: S311  the order of requests
        rings = await asyncio.gather(*(ring_of_answer(api, path, headers) for _, headers, api, path in expected))
        assert [row[0] for row in expected] == rings


async def test_a_client_gets_the_view_of_a_new_ring_at_once(gateways: Gateways) -> None:
    client_id, headers = await gateways.add_client("pc-1")
    for ring, expected in (("pilot", "pilot"), ("broad", "broad"), ("everyone", ""), ("pilot", "pilot"), ("", "")):
        await gateways.move(client_id, ring)
        assert await gateways.rings(headers) == {expected}


async def test_rings_and_rules_of_the_tenant_count_at_once(services: Services, gateways: Gateways) -> None:
    _, own = await gateways.add_client("pc-1", "pilot")
    _, by_rule = await gateways.add_client("pc-2")
    here, elsewhere = {"network": "127.0.0.0/8"}, {"network": "10.0.0.0/8"}
    first, second = [{**here, "ring": "broad"}], [{**elsewhere, "ring": "broad"}, {**here, "ring": "pilot"}]
    rows: list[tuple[Sequence[str], Sequence[Mapping[str, str]], tuple[str, ...]]] = [
        (RINGS, first, ("pilot", "broad", "")),
        (RINGS, second, ("pilot", "pilot", "")),
        (("broad", "everyone"), second, ("", "", "")),
        ((), second, ("", "", "")),
        (RINGS, second, ("pilot", "pilot", "")),
    ]
    for rings, rules, expected in rows:
        gateways.catalog_service.rings, gateways.catalog_service.ring_rules = rings, rules
        await services.operator.tenants.edit(gateways.tenant.tenant_id, {})  # gives the tenant a new version
        assert [await gateways.rings(headers) for headers in (own, by_rule, {})] == [{ring} for ring in expected]


async def test_a_caller_cannot_choose_the_ring(gateways: Gateways) -> None:
    for name in ("X-Internal-Ring", "X-Ring", "Ring"):
        assert await gateways.rings({name: "pilot", "X-Forwarded-For": "10.0.0.1"}) == {""}
