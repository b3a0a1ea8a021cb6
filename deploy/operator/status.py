"""The status of the services, from the readiness endpoint of each."""

import asyncio
import os
import ssl
from pathlib import Path

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, UnixConnector
from rich.console import Console

from deploy.local.folder import SERVICES, DataFolder, FolderProblem
from deploy.terminal import folding_table

TIMEOUT = 5  # seconds
DEFAULT_FOLDER = Path("data")  # of `pkgrepo up`
PORTS = {
    "gateway": 8080,
    "auth_service": 8081,
    "catalog_service": 8082,
    "upload_service": 8083,
    "client_registry": 8084,
}


async def print_status(console: Console, data: Path | None) -> bool:
    """Print a row for each service; whether all are ready. Raises FolderProblem if nothing runs on the folder `data`.

    Without a folder, the services are those of GATEWAY_URL and the like, of the default folder, or of default ports.
    """
    addresses, trust, is_guessed = _addresses(data)
    answers = await asyncio.gather(*(_missing(address, trust) for address in addresses.values()))
    table = folding_table("Service", "Address", "Status", "Missing")
    for (name, address), missing in zip(addresses.items(), answers, strict=True):
        text = ", ".join(f"{dependency}: {reason}" for dependency, reason in missing.items())
        table.add_row(name, address, "not ready" if missing else "ready", text)
    console.print(table)
    if is_guessed:
        console.print("These are default addresses, perhaps of another server.")
        console.print("Give --data DIR of a running `pkgrepo up`, or set GATEWAY_URL and the like.")
    return not any(answers)


def _addresses(data: Path | None) -> tuple[dict[str, str], ssl.SSLContext | bool, bool]:
    """The address of each service, the trusted certificates, and whether the addresses are only the default ones."""
    named = {name: address for name in PORTS if (address := os.environ.get(f"{name.upper()}_URL"))}
    folder = DataFolder((data or DEFAULT_FOLDER).absolute())
    try:
        if data or not named:
            sockets = {name: f"unix:{folder.socket(name)}" for name in SERVICES}
            return {"gateway": folder.addresses().base_url, **sockets}, folder.trust, False
    except FolderProblem:
        if data:
            raise
    return {name: named.get(name, f"http://127.0.0.1:{port}") for name, port in PORTS.items()}, True, not named


async def _missing(address: str, trust: ssl.SSLContext | bool) -> dict[str, str]:
    unix = address.startswith("unix:")
    connector = UnixConnector(address.removeprefix("unix:")) if unix else TCPConnector(ssl=trust)
    base = "http://localhost" if unix else address
    try:
        async with (
            ClientSession(connector=connector, timeout=ClientTimeout(total=TIMEOUT)) as session,
            session.get(f"{base}/readyz") as response,
        ):
            answer = orjson.loads(await response.read())
    except (ClientError, OSError, TimeoutError):
        return {"service": "does not answer"}
    except orjson.JSONDecodeError:
        answer = None
    if answer == {"status": "ready"}:
        return {}
    if not isinstance(answer, dict) or "status" not in answer:
        return {"service": "another program answers"}
    return answer.get("missing") or {"service": str(answer["status"])}
