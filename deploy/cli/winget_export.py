"""`pkgrepo manifests`: exports the catalog as winget manifests."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import stamina.instrumentation
import typer

from common.errors import Problem
from common.http.server import until_stopped
from common.settings import load
from deploy.cli.options import INTERRUPTED, CaFile, Timeout, Url
from deploy.cli.publish import check_address, console, describe_problem, open_interface, report_retry
from deploy.publish.session import Credentials
from deploy.terminal import print_line, visible
from deploy.winget_import.exporter import ExportedManifest, ManifestExport


def manifests(
    folder: Annotated[Path, typer.Argument(file_okay=False, help="Target folder; created if it does not exist.")],
    url: Url,
    package: Annotated[list[str] | None, typer.Option(help="Package id. Default: all packages.")] = None,
    timeout: Timeout = 600,
    ca_file: CaFile = None,
) -> None:
    """Export the catalog as winget manifests, one folder for each version; prints the folders.

    Signs in like `pkgrepo publish`. The addresses of installers that the server stores expire.
    """
    credentials = load(Credentials)
    credentials.check()
    check_address(url)
    done: list[ExportedManifest] = []
    finished: list[bool] = []

    async def work() -> None:
        async with open_interface(url, ca_file, credentials, timeout) as interface:
            done.extend(await ManifestExport(interface, folder).run(package or ()))
            finished.append(True)

    stamina.instrumentation.set_on_retry_hooks([report_retry])
    try:
        asyncio.run(until_stopped(work()))
    except Problem as problem:
        sys.exit(f"pkgrepo: {visible(describe_problem(problem, timeout))}")
    if not finished:
        console.print("Stopped.")
        raise typer.Exit(INTERRUPTED)
    for one in done:
        if one.problem:
            print_line(console, f"{one.package_id} {one.version}: {one.problem.detail}", "red")
        else:
            typer.echo(visible(one.folder))
    if any(one.problem for one in done):
        raise typer.Exit(1)
