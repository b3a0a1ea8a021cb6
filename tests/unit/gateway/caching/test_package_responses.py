"""Equal requests about packages share one response if it is valid for each caller."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from common.auth.internal_tokens import HIDDEN, Caller, Deployment, hidden_digest
from common.errors import Overloaded, UpstreamProblem
from common.http.middleware import REVISION_HEADER, problem_response
from common.redis import TENANT_VERSION_HEADER
from common.service_client.client import ServiceClient
from common.tenants import Tenant
from gateway.auth.authenticator import TENANT_VERSION
from gateway.auth.directories import ClientDirectory
from gateway.caching.package_responses import PackageResponseCache
from gateway.routing import Target

PATH = "/acme/winget/packageManifests/Hidden.Package"
TARGET = Target.parse("GET", PATH, Deployment.MULTI, "")
FIRST, SECOND = (Caller(Tenant("acme")).as_client(client_id) for client_id in ("first", "second"))


@dataclass
class Services:
    """catalog_service and client_registry; both clients have a blacklist entry for the same package."""

    hidden: dict[str, frozenset[str]] = field(
        default_factory=lambda: {"first": frozenset(["Hidden.Package"]), "second": frozenset(["Hidden.Package"])}
    )
    refused: frozenset[str] = frozenset()
    askers: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    requested: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def json(self, caller: Caller, operation: str) -> dict[str, Any]:
        assert operation == "hidden_packages"
        return {"package_ids": sorted(self.hidden[caller.client_id])}

    @asynccontextmanager
    async def open(self, caller: Caller, *_: Any, headers: Mapping[str, str], **__: Any) -> AsyncIterator[Any]:
        self.askers.append(caller.client_id)
        self.versions.append(headers[TENANT_VERSION_HEADER])
        self.requested.set()
        await self.release.wait()
        if caller.client_id in self.refused:
            problem = problem_response(Overloaded())
            yield SimpleNamespace(status=503, headers=problem.headers, read=lambda: body_of(problem))
            return
        hidden = self.hidden[caller.client_id]
        answer = web.Response(body=f"the answer for {caller.client_id}{caller.base_url}".encode())
        yield SimpleNamespace(
            status=200,
            headers={HIDDEN: hidden_digest(hidden), REVISION_HEADER: "1"},
            content_length=len(await body_of(answer)),
            read=lambda: body_of(answer),
        )


async def body_of(response: web.Response) -> bytes:
    assert isinstance(response.body, bytes)
    return response.body


def cache_of(services: Services) -> PackageResponseCache:
    service = cast("ServiceClient", services)
    return PackageResponseCache(service, ClientDirectory(service))


async def body_for(cache: PackageResponseCache, caller: Caller) -> bytes:
    request = make_mocked_request("GET", PATH)
    request[TENANT_VERSION] = "a version"
    response = await cache.find(request, caller, TARGET)
    assert response is not None
    return await body_of(response)


async def ask_together(
    services: Services, cache: PackageResponseCache
) -> tuple[asyncio.Task[bytes], asyncio.Task[bytes]]:
    """Two clients send the same request; the second one waits for the response to the first."""
    first = asyncio.create_task(body_for(cache, FIRST))
    await services.requested.wait()
    second = asyncio.create_task(body_for(cache, SECOND))
    for _ in range(20):  # The second client awaits nothing outside of this process.
        await asyncio.sleep(0)
    assert services.askers == ["first"]
    return first, second


async def test_equal_requests_share_one_response() -> None:
    services = Services()
    first, second = await ask_together(services, cache_of(services))
    services.release.set()
    assert [await first, await second] == [b"the answer for first"] * 2
    assert (services.askers, services.versions) == (["first"], ["a version"])


async def test_callers_of_other_rings_share_no_response() -> None:
    services = Services()
    services.release.set()
    cache, tenant = cache_of(services), FIRST.tenant
    pilot, user = Caller(tenant).as_client("second", "pilot"), Caller(tenant).as_administrator("ada", "s1", ())
    services.hidden = {"first": frozenset(), "second": frozenset(), "": frozenset()}
    for _ in range(2):
        bodies = [await body_for(cache, caller) for caller in (user, FIRST, pilot)]
        assert bodies == [b"the answer for ", b"the answer for first", b"the answer for second"]
    assert services.askers == ["", "first", "second"]


async def test_callers_of_other_sites_share_no_response() -> None:
    services = Services()
    services.release.set()
    cache = cache_of(services)
    graz = replace(SECOND, site_url="https://graz.pkg.example.com")
    for _ in range(2):
        bodies = [await body_for(cache, caller) for caller in (FIRST, graz)]
        assert bodies == [b"the answer for first", b"the answer for second"]
    assert services.askers == ["first", "second"]


async def test_a_forged_host_does_not_reach_the_responses_of_others() -> None:
    services = Services()
    services.release.set()
    cache = cache_of(services)
    callers = [replace(FIRST, base_url=url) for url in ("http://evil.example/acme", "http://packages.example/acme")]
    for _ in range(2):
        bodies = [await body_for(cache, caller) for caller in callers]
        assert bodies == [f"the answer for first{caller.base_url}".encode() for caller in callers]
    assert services.askers == ["first", "first"]


async def test_a_response_for_other_hidden_packages_stays_with_its_client_and_is_not_cached() -> None:
    services = Services()
    cache = cache_of(services)
    first, second = await ask_together(services, cache)
    services.hidden["first"] = frozenset()  # An administrator removes the entry during the request.
    services.release.set()
    assert [await first, await second] == [b"the answer for first", b"the answer for second"]
    assert await body_for(cache, SECOND) == b"the answer for second"


async def test_a_refusal_for_too_many_searches_stays_with_its_client() -> None:
    services = Services(refused=frozenset(["first"]))
    first, second = await ask_together(services, cache_of(services))
    services.release.set()
    assert await second == b"the answer for second"
    with pytest.raises(UpstreamProblem) as refusal:
        await first
    assert (refusal.value.status, refusal.value.retry_after) == (503, 2)
