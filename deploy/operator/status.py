"""The status of the services, from the readiness endpoint of each."""

import asyncio
import os
import ssl

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, UnixConnector
from rich.console import Console
from rich.table import Table

from deploy.cluster.secrets import SETTINGS
from deploy.local.folder import SERVICES, DataFolder

TIMEOUT = 5  # seconds


async def print_status(console: Console, folder: DataFolder | None) -> bool:
    """Print a row for each service; whether all are ready. Without a folder, GATEWAY_URL and the like are used."""
    trust = True if folder is None else folder.trust
    if folder:
        sockets = {name: f"unix:{folder.socket(name)}" for name in SERVICES}
        addresses = {"gateway": folder.addresses().base_url, **sockets}
    else:
        listen = {name: settings.model_fields["listen"].default for name, settings in SETTINGS.items()}
        addresses = {name: os.environ.get(f"{name.upper()}_URL", f"http://{listen[name]}") for name in SETTINGS}
    answers = await asyncio.gather(*(_missing(address, trust) for address in addresses.values()))
    table = Table("Service", "Address", "Status", "Missing")
    for (name, address), missing in zip(addresses.items(), answers, strict=True):
        text = ", ".join(f"{dependency}: {reason}" for dependency, reason in missing.items())
        table.add_row(name, address, "not ready" if missing else "ready", text)
    console.print(table)
    return not any(answers)


async def _missing(address: str, trust: ssl.SSLContext | bool) -> dict[str, str]:
    unix = address.startswith("unix:")
    connector = UnixConnector(address.removeprefix("unix:")) if unix else TCPConnector(ssl=trust)
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
