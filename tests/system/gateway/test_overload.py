"""Overload: some requests are answered, the others rejected with Retry-After, and none are lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import ClientSession, TCPConnector, web
from structlog.testing import capture_logs

from common.errors import Overloaded
from common.http.middleware import problem_response
from common.service_client.client import CONNECTIONS
from tests.support.api import Answer, read_answer
from tests.support.system.gateways import at_gateway, run_gateway
from tests.support.system.problems import check_problem
from tests.support.system.services import Api, Services
from tests.support.system.stub_service import serve_handler
from tests.support.wait import until

SOON = 60  # seconds: an upper bound for a busy machine


@pytest.fixture
async def crowd() -> AsyncIterator[ClientSession]:
    """Callers with a separate connection each."""
    async with ClientSession(connector=TCPConnector(limit=0, force_close=True)) as session:
        yield session


async def call(crowd: ClientSession, api: Api, method: str, operation: str, **request: Any) -> Answer:
    async with crowd.request(method, f"{api.base_url}/{operation}", headers=api.headers, **request) as response:
        return await read_answer(response)


def check_refused(answer: Answer) -> None:
    check_problem(answer, 503, "overloaded")
    assert int(answer.headers["Retry-After"]) > 0


async def test_a_request_that_waits_too_long_is_rejected(
    services: Services, redis_url: str, crowd: ClientSession, tenant: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.service_client.client.SLOT_TIMEOUT", 0.5)
    monkeypatch.setattr("common.service_client.client.ANSWER_TIMEOUT", SOON)
    too_many, requests, release = 100, 0, asyncio.Event()

    async def busy(_: web.Request) -> web.Response:
        nonlocal requests
        requests += 1
        await release.wait()
        return web.json_response([])

    async with serve_handler(busy) as catalog, run_gateway(services, redis_url, catalog_service_url=catalog) as address:
        before = at_gateway(tenant, address)
        answering = [
            asyncio.ensure_future(call(crowd, before, "GET", "get_finished_uploads"))
            for _ in range(CONNECTIONS + too_many)
        ]
        async with asyncio.timeout(SOON):
            coming = asyncio.as_completed(answering)
            for _ in range(too_many):
                check_refused(await next(coming))
            # The limits of services are separate.
            assert (await call(crowd, before, "GET", "get_users")).status == 200
            release.set()
            answers = await asyncio.gather(*answering)
    assert Counter(answer.status for answer in answers) == {200: CONNECTIONS, 503: too_many}
    assert requests == CONNECTIONS


async def test_slow_operations_do_not_delay_short_requests(
    services: Services, redis_url: str, crowd: ClientSession, tenant: Api
) -> None:
    many, requests, release = CONNECTIONS + 10, 0, asyncio.Event()

    async def busy(request: web.Request) -> web.Response:
        nonlocal requests
        if "delete_package" in request.path:
            requests += 1
            await release.wait()
        return web.json_response([])

    async with serve_handler(busy) as catalog, run_gateway(services, redis_url, catalog_service_url=catalog) as address:
        before = at_gateway(tenant, address)

        async def all_asked() -> bool:
            return requests == many

        deleting = [asyncio.ensure_future(call(crowd, before, "DELETE", "delete_package/a")) for _ in range(many)]
        async with asyncio.timeout(SOON):
            await until(all_asked)
            assert (await call(crowd, before, "GET", "get_finished_uploads")).status == 200
            release.set()
            assert {answer.status for answer in await asyncio.gather(*deleting)} == {200}


async def test_endless_streams_do_not_use_all_connections(
    services: Services, redis_url: str, crowd: ClientSession, tenant: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.service_client.client.STREAMS", 4)
    monkeypatch.setattr("common.service_client.client.STREAMS_OF_NETWORK", 3)
    monkeypatch.setattr("common.service_client.client.STREAM_TIMEOUT", 0.5)
    requests, release = 0, asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal requests
        if "get_packages" not in request.path:
            return web.json_response([])
        requests += 1
        response = web.StreamResponse()
        await response.prepare(request)
        await release.wait()
        return response

    away: dict[str, Any] = {"trusted_proxies": "127.0.0.0/8"}
    async with (
        serve_handler(endless) as catalog,
        run_gateway(services, redis_url, catalog_service_url=catalog, **away) as gateway_address,
    ):

        async def ask(ip: str, method: str, operation: str) -> Answer:
            headers = {**tenant.headers, "X-Forwarded-For": ip}
            # The gateway does not cache this query.
            url = f"{gateway_address}/{tenant.tenant_id}/{operation}?x=y"
            async with crowd.request(method, url, headers=headers) as response:
                return await read_answer(response)

        async def begun(streams: int) -> None:
            async def all_asked() -> bool:
                return requests >= streams

            await until(all_asked)

        async with asyncio.timeout(SOON):
            one_place = ["2001:db8::1", "2001:db8::2", "2001:db8::3"]
            reading = [asyncio.ensure_future(ask(ip, "POST", "get_packages")) for ip in one_place]
            await begun(3)
            check_refused(await ask("2001:db8::4", "POST", "get_packages"))
            reading.append(asyncio.ensure_future(ask("192.0.2.1", "POST", "get_packages")))
            await begun(4)
            # All streams are in use now. Other slow requests have a separate limit.
            assert (await ask("192.0.2.1", "DELETE", "delete_package/a")).status == 200
            release.set()
            assert {answer.status for answer in await asyncio.gather(*reading)} == {200}


async def test_an_office_behind_one_address_downloads_at_once(
    services: Services, redis_url: str, crowd: ClientSession, tenant: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.service_client.client.STREAM_TIMEOUT", 0.5)
    machines, begun, all_began = 300, 0, asyncio.Event()

    async def until_all_began(_: web.Request) -> web.StreamResponse:
        nonlocal begun
        begun += 1
        if begun == machines:
            all_began.set()
        await all_began.wait()
        return web.Response(body=b"MZ")

    async with (
        asyncio.timeout(SOON),
        serve_handler(until_all_began) as upload,
        run_gateway(services, redis_url, upload_service_url=upload) as address,
    ):
        installer = f"{at_gateway(tenant, address).base_url}/download/{uuid4()}.exe/setup.exe"

        async def download() -> int:
            async with crowd.get(installer, params={"expires": "1", "signature": "0"}) as response:
                return response.status

        statuses = await asyncio.gather(*(download() for _ in range(machines)))
    assert Counter(statuses) == {200: machines}


async def test_overload_rejections_fill_no_audit_or_error_log(
    services: Services, redis_url: str, crowd: ClientSession, tenant: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.forwarding.audit.MAX_REFUSALS", 3)

    async def busy(_: web.Request) -> web.Response:
        return problem_response(Overloaded())

    async with serve_handler(busy) as catalog, run_gateway(services, redis_url, catalog_service_url=catalog) as address:
        before = at_gateway(tenant, address)
        with capture_logs() as logs:
            for _ in range(6):
                check_refused(await call(crowd, before, "DELETE", "delete_package/a"))
    recorded = (await tenant.call("GET", "get_audit_log", params={"operation": "delete_package"})).body
    assert [entry["status"] for entry in recorded] == [503] * 3
    assert [entry for entry in logs if entry["log_level"] == "error"] == []
