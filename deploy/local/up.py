"""Runs all five services in one process, over unix sockets, with bundled stores."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from auth_service.app import create_app as create_auth_service
from auth_service.settings import AuthSettings
from catalog_service.app import create_app as create_catalog_service
from catalog_service.settings import CatalogSettings
from client_registry.app import create_app as create_client_registry
from client_registry.settings import RegistrySettings
from common.auth.internal_tokens import Deployment
from common.events.local import LocalEvents
from common.http.readiness import READINESS
from common.http.server import keep_memory, management_of, serving
from common.settings import load
from common.telemetry.tracing import traces
from deploy.local.first_tenant import create_first_tenant
from deploy.local.folder import SERVICES, Addresses, DataFolder
from deploy.operator.audit import open_operator_audit
from deploy.operator.schemas import open_database
from deploy.operator.stores import StoreAddresses, local_stores
from deploy.operator.tenants import open_operator
from gateway.app import create_app as create_gateway
from gateway.settings import GatewaySettings
from upload_service.app import create_app as create_upload_service
from upload_service.settings import UploadSettings

DEMO_TENANT = "demo"
SINGLE_TENANT = "main"


@dataclass(frozen=True)
class RunningService:
    """The base address of the first tenant, and the administrator's password if it is new."""

    base_url: str
    password: str | None


@asynccontextmanager
async def run_all(folder: DataFolder, host: str, port: int, deployment: Deployment) -> AsyncIterator[RunningService]:
    """Start everything on the prepared folder, in order; when the block ends, stop everything in reverse.

    Raises BadSetting, ServerUnavailable for a store, SchemaIsNewer if a later version used the folder, and OSError if
    the address is in use.
    """
    keep_memory()
    async with AsyncExitStack() as stack:
        mongo_url, redis_url = await stack.enter_async_context(local_stores(folder))
        tenant_id = SINGLE_TENANT if deployment is Deployment.SINGLE else DEMO_TENANT
        async with open_database(mongo_url, "auth"):
            pass  # Fails for a newer schema; the services would wait instead.
        listen = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        stores = {"mongo_url": mongo_url, "redis_url": redis_url}
        base_url = await _serve(stack, folder, stores, listen, deployment)
        addresses = Addresses(base_url, **stores)
        where = StoreAddresses(addresses, folder.installers, folder.audit_key)
        async with open_operator(addresses) as operator, open_operator_audit(where) as audit:
            password = await create_first_tenant(operator, audit, tenant_id, folder.password)
        folder.save_addresses(addresses)
        stack.callback(folder.remove_addresses)
        prefix = "client/api" if deployment is Deployment.SINGLE else tenant_id
        yield RunningService(f"{base_url}/{prefix}", password)


async def _serve(
    stack: AsyncExitStack, folder: DataFolder, stores: dict[str, str], listen: str, deployment: Deployment
) -> str:
    """Serve all five services; the address of the gateway."""
    sockets = {name: f"unix:{folder.socket(name)}" for name in SERVICES}
    shared: dict[str, Any] = {
        "internal_key": folder.key("internal"),
        "session_key": folder.key("session"),
        "audit_key": folder.audit_key,
        "download_key": folder.key("download"),
        "client_token_key": folder.key("client-token"),
        "installers": folder.installers,
        **stores,
        **{f"{name}_url": address for name, address in sockets.items()},
    }
    settings = load(GatewaySettings, **shared, deployment=deployment, tenant_id=SINGLE_TENANT)
    stack.enter_context(traces.during("pkgrepo", settings.otel_exporter_otlp_endpoint))
    events = LocalEvents()
    apps = {
        "auth_service": create_auth_service(load(AuthSettings, **shared)),
        "client_registry": create_client_registry(load(RegistrySettings, **shared)),
        "upload_service": create_upload_service(load(UploadSettings, **shared), events),
        "catalog_service": create_catalog_service(load(CatalogSettings, **shared), events),
    }
    for name, app in apps.items():
        await stack.enter_async_context(serving(app, sockets[name]))
    for app in apps.values():
        await app[READINESS].prepared()
    gateway = create_gateway(settings, events)
    address = await stack.enter_async_context(serving(gateway, listen))
    if settings.management_listen:
        management = management_of(gateway, *apps.values())
        await stack.enter_async_context(serving(management, settings.management_listen))
    return address
