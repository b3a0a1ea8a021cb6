"""Runs all five services in one process, over unix sockets, with bundled stores."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from auth_service.app import create_app as create_auth_service
from auth_service.settings import AuthSettings
from catalog_service.app import create_app as create_catalog_service
from catalog_service.settings import CatalogSettings
from client_registry.app import create_app as create_client_registry
from client_registry.settings import RegistrySettings
from common.auth.internal_tokens import Deployment
from common.events.local import LocalEvents
from common.http.middleware import ROUTE, BytesResponse
from common.http.server import READINESS, keep_memory, management_of, open_many_files, serving
from common.settings import load
from common.telemetry.tracing import traces
from deploy.local.first_tenant import create_first_tenant
from deploy.local.folder import SERVICES, Addresses, DataFolder
from deploy.local.host_names import authority, is_wildcard, server_names
from deploy.operator.audit import open_operator_audit
from deploy.operator.schemas import open_database
from deploy.operator.stores import StoreAddresses, local_stores
from deploy.operator.tenants import open_operator
from gateway.app import create_app as create_gateway
from gateway.settings import GatewaySettings
from upload_service.app import create_app as create_upload_service
from upload_service.settings import UploadSettings

if TYPE_CHECKING:
    from deploy.local.certificates import Certificates

DEMO_TENANT = "demo"
SINGLE_TENANT = "main"
CA_PATH = "/ca.crt"  # no path of the interface, which begins with a tenant's id


@dataclass(frozen=True)
class RunningService:
    """The first tenant: its base addresses for other machines and for this one, and its administrator's new password.

    `certificates` are None without TLS.
    """

    tenant_id: str
    base_url: str
    local_url: str
    password: str | None
    certificates: "Certificates | None"


@asynccontextmanager
async def run_all(
    folder: DataFolder, host: str, port: int, deployment: Deployment, names: Sequence[str] = (), *, tls: bool = False
) -> AsyncIterator[RunningService]:
    """Start everything on the prepared folder, in order; when the block ends, stop everything in reverse.

    With `tls` the gateway serves https, under `names` and the names of this machine.
    Raises BadSetting, ServerUnavailable for a store, SchemaIsNewer if a later version used the folder, and OSError if
    the address is in use.
    """
    keep_memory()
    open_many_files()
    async with AsyncExitStack() as stack:
        mongo_url, redis_url = await stack.enter_async_context(local_stores(folder))
        tenant_id = SINGLE_TENANT if deployment is Deployment.SINGLE else DEMO_TENANT
        async with open_database(mongo_url, "auth"):
            pass  # Fails for a newer schema; the services would wait instead.
        names = server_names(host, names)
        certificates = await _certificates(stack, folder, names) if tls else None
        stores = {"mongo_url": mongo_url, "redis_url": redis_url}
        url = urlsplit(await _serve(stack, folder, stores, authority(host, port), deployment, certificates))
        loopback = "::1" if ":" in host else "127.0.0.1"
        base_url, local_url = (
            f"{url.scheme}://{authority(name, url.port or port)}"
            for name in (names[0], loopback if is_wildcard(host) else host)
        )
        addresses = Addresses(local_url, **stores)
        where = StoreAddresses(addresses, folder.installers, folder.audit_key)
        async with open_operator(addresses) as operator, open_operator_audit(where) as audit:
            password = await create_first_tenant(operator, audit, tenant_id, folder.password)
        folder.save_addresses(addresses)
        stack.callback(folder.remove_addresses)
        prefix = "client/api" if deployment is Deployment.SINGLE else tenant_id
        yield RunningService(tenant_id, f"{base_url}/{prefix}", f"{local_url}/{prefix}", password, certificates)


async def _certificates(stack: AsyncExitStack, folder: DataFolder, names: Sequence[str]) -> "Certificates":
    """The certificates in the folder, renewed while the stack is open."""
    from deploy.local.certificates import Certificates, renewing  # noqa: PLC0415  a library of the extra `local`

    certificates = Certificates(folder.certificates, names)
    await stack.enter_async_context(renewing(certificates))
    return certificates


def _offer_ca_certificate(app: web.Application, certificates: "Certificates") -> None:
    """Answer CA_PATH to everyone: a machine fetches the certificate before it trusts the server."""

    @web.middleware
    async def ca_certificate(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path != CA_PATH or request.method not in {"GET", "HEAD"}:
            return await handler(request)
        request[ROUTE] = CA_PATH
        headers = {"Content-Type": "application/x-x509-ca-cert"}
        return BytesResponse(body=certificates.ca_certificate, headers=headers)

    app.middlewares.append(ca_certificate)


async def _serve(
    stack: AsyncExitStack,
    folder: DataFolder,
    stores: dict[str, str],
    listen: str,
    deployment: Deployment,
    certificates: "Certificates | None",
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
    settings = load(
        GatewaySettings, **shared, deployment=deployment, tenant_id=SINGLE_TENANT, default_tenant=DEMO_TENANT
    )
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
    if certificates:
        _offer_ca_certificate(gateway, certificates)
    context = certificates.context if certificates else None
    address = await stack.enter_async_context(serving(gateway, listen, tls=context))
    if settings.management_listen:
        management = management_of(gateway, *apps.values())
        await stack.enter_async_context(serving(management, settings.management_listen))
    return address
