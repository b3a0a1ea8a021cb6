"""Additional gateways for the running services."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from common.auth.internal_tokens import Deployment
from common.http.server import serving
from gateway.app import create_app
from gateway.settings import GatewaySettings
from tests.support.factories import KEYS
from tests.support.system.services import Api, Services

SERVICES = ("auth_service", "catalog_service", "upload_service", "client_registry")


@asynccontextmanager
async def run_gateway(services: Services, redis_url: str, **settings: Any) -> AsyncIterator[str]:
    """Run another gateway. `settings` may change the addresses of the services. Yields its address."""
    own: dict[str, Any] = {f"{name}_url": services.addresses[name] for name in SERVICES}
    own |= {"internal_key": KEYS, "session_key": KEYS, "redis_url": redis_url, **settings}
    async with serving(create_app(GatewaySettings(**own)), "127.0.0.1:0") as address:
        yield address


@asynccontextmanager
async def single_gateway(services: Services, redis_url: str, tenant: Api) -> AsyncIterator[Api]:
    """Run a single-tenant gateway for a tenant of the multi-tenant deployment. Yields its caller."""
    single: dict[str, Any] = {"deployment": Deployment.SINGLE, "tenant_id": tenant.tenant_id}
    async with run_gateway(services, redis_url, **single) as address:
        yield replace(tenant, base_url=f"{address}/client/api", deployment=Deployment.SINGLE)


def at_gateway(api: Api, address: str) -> Api:
    """The same caller at another multi-tenant gateway."""
    return replace(api, base_url=f"{address}/{api.tenant_id}")
