"""`pkgrepo up`: all services on one machine."""

import asyncio
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import BadParameter, Option

from common.auth.internal_tokens import Deployment
from common.http.server import until_stopped
from common.telemetry import configure_logs
from deploy.local.certificates import is_host
from deploy.local.demo import publish_samples
from deploy.local.folder import DataFolder
from deploy.local.up import open_log, print_welcome, run_all

console = Console(highlight=False, soft_wrap=True)


def up(
    data: Annotated[Path, Option(help="Folder of all data.")] = Path("data"),
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0 chooses a free port.")] = 8080,
    deployment: Annotated[
        Deployment, Option(help="Paths begin with a tenant id (multi) or with client/api (single).")
    ] = Deployment.MULTI,
    demo: Annotated[bool, Option(help="Publish a few sample packages.")] = False,
    tls: Annotated[bool, Option("--tls", help="Serve https, with a certificate authority in the data folder.")] = False,
    name: Annotated[
        list[str] | None,
        Option(help="Host name or address that clients use, for the certificate and messages; repeatable."),
    ] = None,
) -> None:
    """Run MongoDB, Redis and all five services on this machine until Ctrl-C."""
    names = name or []
    if wrong := [each for each in names if not is_host(each)]:
        raise BadParameter(f"{wrong[0]!r} must be a host name or an address, without https:// and port.")
    folder = DataFolder(data.absolute())

    async def work() -> None:
        console.print(f"Starting on {folder.path} …")
        folder.prepare()
        with open_log(folder.logs) as logs:
            configure_logs("info", logs)
            async with run_all(folder, host, port, deployment, names, tls=tls) as service:
                if demo:
                    password = folder.password.read_text(encoding="utf-8")
                    console.print(await publish_samples(service.local_url, password, folder.trust))
                print_welcome(console, service, folder)
                try:
                    await asyncio.Event().wait()
                finally:
                    console.print("Stopping …")

    asyncio.run(until_stopped(work()))
    console.print("Stopped. All data is kept.")
