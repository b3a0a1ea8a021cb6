"""`pkgrepo up`: all services on one machine."""

import asyncio
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Option

from common.auth.callers import Deployment
from common.http.server import until_stopped
from common.telemetry import configure_logs
from deploy.local.demo import publish_samples
from deploy.local.first_tenant import ADMINISTRATOR
from deploy.local.folder import DataFolder
from deploy.local.logs import open_log
from deploy.local.up import RunningService, run_all

console = Console(highlight=False, soft_wrap=True)


def up(
    data: Annotated[Path, Option(help="Folder of all data.")] = Path("data"),
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0 chooses a free port.")] = 8080,
    deployment: Annotated[
        Deployment, Option(help="Paths begin with a tenant id (multi) or with client/api (single).")
    ] = Deployment.MULTI,
    demo: Annotated[bool, Option(help="Publish a few sample packages.")] = False,
) -> None:
    """Run MongoDB, Redis and all five services on this machine until Ctrl-C."""
    folder = DataFolder(data.absolute())
    asyncio.run(until_stopped(_up(folder, host, port, deployment, demo=demo)))
    console.print("Stopped. All data is kept.")


async def _up(folder: DataFolder, host: str, port: int, deployment: Deployment, *, demo: bool) -> None:
    console.print(f"Starting on {folder.path} …")
    folder.prepare()
    with open_log(folder.logs) as logs:
        configure_logs("info", logs)
        async with run_all(folder, host, port, deployment) as service:
            if demo:
                console.print(await publish_samples(service.base_url, folder.password.read_text(encoding="utf-8")))
            _print_welcome(service, folder)
            try:
                await asyncio.Event().wait()
            finally:
                console.print("Stopping …")


def _print_welcome(service: RunningService, folder: DataFolder) -> None:
    base, password = service.base_url, folder.password
    console.print(f"\n[bold]{base}[/bold] is ready. Logs: {folder.logs}")
    if service.password:
        console.print(f"Administrator [bold]{ADMINISTRATOR}[/bold], password [bold]{service.password}[/bold]")
        console.print(f"The password is shown once. It is stored in {password}")
    elif password.exists():
        console.print(f"Administrator [bold]{ADMINISTRATOR}[/bold]. The first password is stored in {password}")
    console.print(
        f"\nIn a browser: {base}/dashboard\n\nFrom a terminal:\n\n"
        f"TOKEN=$(curl -s {base}/login -d username={ADMINISTRATOR} --data-urlencode password@{password}"
        """ | sed -E 's/.*"message":"([^"]+)".*/\\1/')\n"""
        f'curl -X POST -H "Authorization: Bearer $TOKEN" {base}/get_packages\n'
        f'curl -H "Authorization: Bearer $TOKEN" {base}/server_information\n\n'
        "Press Ctrl-C to stop.",
        markup=False,
    )
