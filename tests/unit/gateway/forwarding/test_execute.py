"""The server information: usage and settings of several services, cached by the tenant's version."""

from dataclasses import dataclass
from typing import cast

import pytest
from aiohttp import web

from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from common.service_client.client import ServiceClient
from common.telemetry import software_version
from common.tenants import Tenant
from gateway.auth.directories import CLIENT_DIRECTORY, POLICIES, ClientDirectory, PolicyDirectory
from gateway.forwarding.execute import server_information
from gateway.forwarding.proxy import SERVICES
from gateway.operations import UPLOAD
from tests.support.services.stand_ins import CatalogStandIn, RegistryStandIn, UploadStandIn

TENANT = Tenant("acme", storage_quota=1000, source_agreements='[{"label":"Terms"}]')
POLICY = {"rings": ["pilot", "everyone"], "ring_rules": [], "gates": {}, "retention": [{"keep_versions": 1}]}


@dataclass
class Services(UploadStandIn, RegistryStandIn, CatalogStandIn):
    """The services that know something of a tenant."""


@pytest.fixture
def services() -> Services:
    usage = {"storage_used": 700, "storage_reserved": 100, "damaged_installers": 1}
    return Services(usage=usage, clients={("acme", "a token"): ("c1", "")}, policy=POLICY)


@pytest.fixture
def app(services: Services) -> web.Application:
    client, app = cast("ServiceClient", services), web.Application()
    app[SERVICES] = {UPLOAD: client}
    app[CLIENT_DIRECTORY], app[POLICIES] = ClientDirectory(client), PolicyDirectory(client)
    return app


async def test_the_state_of_the_tenant_is_shown(app: web.Application) -> None:
    assert await server_information(app, Caller(TENANT), "1") == {
        "tenant_id": "acme",
        "software_version": software_version(),
        "storage_used": 700,
        "storage_reserved": 100,
        "storage_quota": 1000,
        "damaged_installers": 1,
        "clients": 1,
        "clients_by_ring": {"pilot": 0, "everyone": 1},
        "max_clients": None,
        "settings": {
            "client_authentication": False,
            "allowed_networks": (),
            "version_key": "version",
            "strict_installers": False,
            "source_address": True,
            "source_agreements": [{"label": "Terms"}],
            "sites": [],
            **POLICY,
        },
    }


async def test_clients_and_policy_are_cached_by_version_only(app: web.Application, services: Services) -> None:
    async def numbers(version: str | None) -> tuple[int, int, list[str]]:
        information = await server_information(app, Caller(TENANT), version)
        return information["storage_used"], information["clients"], information["settings"]["rings"]

    first = (700, 1, ["pilot", "everyone"])
    assert [await numbers("1"), await numbers(None)] == [first] * 2
    services.usage["storage_used"] = 701
    services.clients["acme", "another token"] = ("c2", "")
    services.policy = {**POLICY, "rings": []}

    assert await numbers("1") == (701, 1, ["pilot", "everyone"])
    assert [await numbers(version) for version in (None, "2", None)] == [(701, 2, [])] * 3


@pytest.mark.parametrize("operation", ["storage_usage", "client_usage", "find_release_policy"])
async def test_a_service_that_does_not_answer_is_reported(
    app: web.Application, services: Services, operation: str
) -> None:
    services.refusals[operation] = Unavailable("A service does not answer.")
    with pytest.raises(Unavailable):
        await server_information(app, Caller(TENANT), "1")
