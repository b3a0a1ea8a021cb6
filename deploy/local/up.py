"""Runs all five services in one process, over unix sockets, with bundled stores, a log file and a welcome text."""

import errno
import hashlib
import os
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler
from rich.console import Console

from auth_service.app import create_app as create_auth_service
from auth_service.settings import AuthSettings
from catalog_service.app import create_app as create_catalog_service
from catalog_service.settings import CatalogSettings
from client_registry.app import create_app as create_client_registry
from client_registry.settings import RegistrySettings
from common.auth.internal_tokens import Deployment
from common.events import LocalEvents
from common.http.middleware import ROUTE, BytesResponse
from common.http.server import READINESS, collect_less_garbage, keep_memory, management_of, open_many_files, serving
from common.settings import load
from common.telemetry import traces
from deploy.local.certificates import LOOPBACK, Certificates, authority, is_wildcard, renewing, server_names
from deploy.local.folder import SERVICES, Addresses, DataFolder
from deploy.operator.stores import StoreAddresses, local_stores, open_database
from deploy.operator.tenants import ADMINISTRATOR, create_first_tenant
from gateway.app import create_app as create_gateway
from gateway.settings import GatewaySettings
from upload_service.app import create_app as create_upload_service
from upload_service.settings import UploadSettings

DEMO_TENANT = "demo"
SINGLE_TENANT = "main"
CA_PATH = "/ca.crt"  # no path of the interface, which begins with a tenant's id
LIMIT = 16 << 20  # bytes of the file, and of the previous one


class PortTaken(Exception):
    """Another program has the port. The text names a command with another one."""


@dataclass(frozen=True)
class RunningService:
    """The first tenant: its base addresses for other machines and for this one, and its administrator's new password.

    `certificates` are None without TLS. `is_local`: only this machine can connect.
    """

    tenant_id: str
    base_url: str
    local_url: str
    password: str | None
    certificates: Certificates | None
    is_local: bool


@asynccontextmanager
async def run_all(
    folder: DataFolder, host: str, port: int, deployment: Deployment, names: Sequence[str] = (), *, tls: bool = False
) -> AsyncIterator[RunningService]:
    """Start everything on the prepared folder, in order; when the block ends, stop everything in reverse.

    With `tls` the gateway serves https, under `names` and the names of this machine.
    Raises BadSetting, ServerUnavailable for a store, SchemaIsNewer if a later version used the folder, PortTaken, and
    OSError if the address cannot be used.
    """
    keep_memory()
    open_many_files()
    async with AsyncExitStack() as stack:
        mongo_url, redis_url = await stack.enter_async_context(local_stores(folder))
        tenant_id = SINGLE_TENANT if deployment is Deployment.SINGLE else DEMO_TENANT
        async with open_database(mongo_url, "auth"):
            pass  # Fails for a newer schema; the services would wait instead.
        names = server_names(host, names)
        certificates = Certificates(folder.certificates, names) if tls else None
        if certificates:
            await stack.enter_async_context(renewing(certificates))
        stores = {"mongo_url": mongo_url, "redis_url": redis_url}
        url = urlsplit(await _serve(stack, folder, stores, (host, port), deployment, certificates))
        loopback = "::1" if ":" in host else "127.0.0.1"
        base_url, local_url = (
            f"{url.scheme}://{authority(name, url.port or port)}"
            for name in (names[0], loopback if is_wildcard(host) else host)
        )
        addresses = Addresses(local_url, **stores)
        where = StoreAddresses(addresses, folder.installers, folder.audit_key)
        password = await create_first_tenant(where, tenant_id, folder.password)
        folder.save_addresses(addresses)
        stack.callback(folder.remove_addresses)
        prefix = "client/api" if deployment is Deployment.SINGLE else tenant_id
        urls = (f"{base_url}/{prefix}", f"{local_url}/{prefix}")
        collect_less_garbage()
        yield RunningService(tenant_id, *urls, password, certificates, is_local=host in LOOPBACK)


def _offer_ca_certificate(app: web.Application, certificates: Certificates) -> None:
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
    listen: tuple[str, int],
    deployment: Deployment,
    certificates: Certificates | None,
) -> str:
    """Serve all five services; the address of the gateway. Raises PortTaken."""
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
    try:
        address = await stack.enter_async_context(serving(gateway, authority(*listen), tls=context))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            port = listen[1]
            free = port + 10 if port < 65_000 else 8090
            raise PortTaken(f"Port {port} is in use. Run `pkgrepo up --port {free}`.") from None
        raise
    if settings.management_listen:
        management = management_of(gateway, *apps.values())
        await stack.enter_async_context(serving(management, settings.management_listen))
    return address


if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class RotatingFile(FileIO):
    """A file that is moved to `NAME.1` before it exceeds LIMIT."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "ab")
        self._path = path

    def write(self, data: "ReadableBuffer", /) -> int:
        if os.fstat(self.fileno()).st_size + memoryview(data).nbytes > LIMIT:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            with FileIO(self._path, "ab") as new:
                os.dup2(new.fileno(), self.fileno(), inheritable=False)
        return super().write(data)


def open_log(path: Path) -> TextIO:
    """Open the log for appending text; each flush writes complete lines."""
    return TextIOWrapper(BufferedWriter(RotatingFile(path)), encoding="utf-8")


def print_welcome(console: Console, service: RunningService, folder: DataFolder) -> None:
    base, local, password = service.base_url, service.local_url, folder.password
    console.print(f"\n[bold]{base}[/bold] is ready. Logs: {folder.logs}")
    if service.password:
        console.print(f"Administrator [bold]{ADMINISTRATOR}[/bold], password [bold]{service.password}[/bold]")
        console.print(f"The password is shown once. It is stored in {password}")
    elif password.exists():
        console.print(f"Administrator {ADMINISTRATOR}. The first password is stored in {password}")
    curl = f"curl --cacert {shlex.quote(str(folder.ca_certificate))}" if service.certificates else "curl"
    console.print(
        f"\nIn a browser: {base}/dashboard\n\nFrom a terminal:\n\n"
        f"TOKEN=$({curl} -s {local}/login -d username={ADMINISTRATOR} "
        f"--data-urlencode {shlex.quote(f'password@{password}')}"
        """ | sed -E 's/.*"message":"([^"]+)".*/\\1/')\n"""
        f'{curl} -H "Authorization: Bearer $TOKEN" {local}/find_packages\n'
        f'{curl} -H "Authorization: Bearer $TOKEN" {local}/server_information\n\n'
        f"{_windows_lines(service)}Press Ctrl-C to stop.",
        markup=False,
    )


def _windows_lines(service: RunningService) -> str:
    """The two lines for PowerShell; empty without TLS, which winget requires. Without a way in, what to run instead."""
    if service.certificates is None:
        return ""
    address = urlsplit(service.base_url)
    if service.is_local:
        again = f"pkgrepo up --tls --host 0.0.0.0 --port {address.port} --name NAME"
        return f"Other machines cannot connect. For them, run `{again}` with a name of this host.\n\n"
    origin = f"{address.scheme}://{address.netloc}"
    digest = hashlib.sha256(service.certificates.ca_certificate).hexdigest().upper()
    replaced = "The CA certificate is new. Import it again on each machine.\n\n"
    return (
        f"{replaced if service.certificates.ca_was_replaced else ''}"
        "On Windows, in PowerShell as administrator. The first line checks and imports the CA certificate:\n\n"
        f"curl.exe -sko ca.crt {origin}{CA_PATH}; if ((Get-FileHash ca.crt).Hash -eq '{digest}') "
        "{ Import-Certificate -FilePath ca.crt -CertStoreLocation Cert:\\LocalMachine\\Root } "
        "else { throw 'ca.crt is not from this server' }\n"
        f"winget source add --name {service.tenant_id} --arg {service.base_url}/winget --type Microsoft.Rest "
        "--trust-level trusted\n\n"
    )
