"""Figures for Prometheus: what each service shows of itself, and to whom."""

import pytest
from aiohttp import ClientSession, UnixConnector

from common.caller import Deployment
from tests.figures import Figures, figures_at
from tests.system.services import Api, Services

SERVICES = ("auth_service", "catalog_service", "upload_service", "client_registry", "gateway")


async def shown(services: Services, name: str) -> Figures:
    """The figures of a service; of the gateway, that of the multi-tenant deployment."""
    return await figures_at(services.session, services.management[Deployment.MULTI if name == "gateway" else name])


async def test_a_request_counts_under_its_route_at_the_gateway_and_at_its_service(
    services: Services, tenant: Api
) -> None:
    route = {"method": "DELETE", "route": "/{tenant_id}/delete_client/{client_id}/{auth_token}"}
    before = {name: await shown(services, name) for name in ("gateway", "client_registry")}

    answer = await tenant.call("DELETE", "delete_client", "a-client", "a-token-of-its-own")

    assert answer.status == 404
    for name, was in before.items():
        now = await shown(services, name)
        for figure, labels in (
            ("pkgrepo_requests_total", {"service": name, "status": "404", **route}),
            ("pkgrepo_request_seconds_count", {"service": name, **route}),
            ("pkgrepo_request_seconds_bucket", {"service": name, "le": "+Inf", **route}),
        ):
            assert now.value(figure, **labels) == was.value(figure, **labels) + 1
        assert now.value("pkgrepo_requests_in_progress", service=name) == 0
        assert not [text for text in now.texts() if "a-token" in text or "a-client" in text]


@pytest.mark.parametrize("name", ["gateway", "auth_service"])
async def test_whatever_else_is_asked_is_one_route_and_one_method(services: Services, name: str) -> None:
    address = services.addresses[Deployment.MULTI if name == "gateway" else name]
    other, unusual = {"service": name, "route": "other"}, {"service": name, "method": "other"}
    before = await shown(services, name)
    async with sessions_at(address) as session:
        for number in range(1000):
            async with session.request("GET" if number else "PURGE", f"/made-up-{number}/op{number}") as answer:
                assert answer.status in {401, 404}
    now = await shown(services, name)

    assert now.value("pkgrepo_requests_total", **other) == before.value("pkgrepo_requests_total", **other) + 1000
    assert now.value("pkgrepo_requests_total", **unusual) == before.value("pkgrepo_requests_total", **unusual) + 1
    assert len(now.lines) - len(before.lines) < 100
    assert not [text for text in now.texts() if "made-up" in text or "PURGE" in text]


@pytest.mark.parametrize("name", SERVICES)
async def test_probes_and_figures_count_for_nothing_and_stand_apart(services: Services, name: str) -> None:
    place = Deployment.MULTI if name == "gateway" else name
    before = await shown(services, name)
    for probe in ("livez", "readyz", "metrics"):
        async with services.session.get(f"{services.management[place]}/{probe}") as answer:
            assert answer.status == 200
    now = await shown(services, name)
    async with sessions_at(services.addresses[place]) as session, session.get("/metrics") as answer:
        assert answer.status == (404 if name == "gateway" else 401)
        assert b"pkgrepo_" not in await answer.read()

    assert now.of("pkgrepo_requests_total") == before.of("pkgrepo_requests_total")


def sessions_at(address: str) -> ClientSession:
    """A way to a service, over its socket where it has one."""
    if address.startswith("unix:"):
        return ClientSession("http://localhost", connector=UnixConnector(address.removeprefix("unix:")))
    return ClientSession(address)
