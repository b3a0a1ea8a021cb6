"""`pkgrepo status`: which services are ready, asked of each."""

import asyncio
import os

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, UnixConnector
from rich.console import Console
from rich.table import Table

from auth_service.settings import AuthSettings
from catalog_service.settings import CatalogSettings
from client_registry.settings import RegistrySettings
from deploy.local.folder import SERVICES, DataFolder
from gateway.settings import GatewaySettings
from upload_service.settings import UploadSettings

TIMEOUT = 5  # seconds
DEFAULT_LISTEN = {
    "gateway": GatewaySettings.model_fields["listen"].default,
    "auth_service": AuthSettings.model_fields["listen"].default,
    "catalog_service": CatalogSettings.model_fields["listen"].default,
    "upload_service": UploadSettings.model_fields["listen"].default,
    "client_registry": RegistrySettings.model_fields["listen"].default,
}


async def print_status(console: Console, folder: DataFolder | None) -> bool:
    """Print a row for each service; whether all are ready.

    Without a folder the services' addresses are those of the environment, `GATEWAY_URL` for the gateway.
    """
    addresses = _of_folder(folder) if folder else _of_environment()
    answers = await asyncio.gather(*(_ask(address) for address in addresses.values()))
    table = Table("Service", "Address", "Status", "Missing")
    for (name, address), missing in zip(addresses.items(), answers, strict=True):
        text = ", ".join(f"{what}: {why}" for what, why in missing.items())
        table.add_row(name, address, "not ready" if missing else "ready", text)
    console.print(table)
    return not any(answers)


def _of_folder(folder: DataFolder) -> dict[str, str]:
    sockets = {name: f"unix:{folder.socket(name)}" for name in SERVICES}
    return {"gateway": folder.addresses().base_url, **sockets}


def _of_environment() -> dict[str, str]:
    return {name: os.environ.get(f"{name.upper()}_URL", f"http://{listen}") for name, listen in DEFAULT_LISTEN.items()}


async def _ask(address: str) -> dict[str, str]:
    unix = address.startswith("unix:")
    connector = UnixConnector(address.removeprefix("unix:")) if unix else TCPConnector()
    base = "http://localhost" if unix else address
    try:
        async with (
            ClientSession(connector=connector, timeout=ClientTimeout(total=TIMEOUT)) as session,
            session.get(f"{base}/readyz") as response,
        ):
            missing: dict[str, str] = orjson.loads(await response.read()).get("missing", {})
            return missing
    except (ClientError, OSError, TimeoutError, orjson.JSONDecodeError):
        return {"service": "does not answer"}
