"""`pkgrepo manifests`: exports a tenant's packages as winget manifests."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import stamina.instrumentation
import typer

from common.errors import Problem
from common.http.server import until_stopped
from common.settings import load
from deploy.cli.publish import INTERRUPTED, asking, check_address, console, say_that_it_is_tried_again, told
from deploy.publish.session import Credentials
from deploy.publish.terminal import say, visible
from deploy.winget_import.exporter import ExportedManifest, ManifestExport


def manifests(
    folder: Annotated[Path, typer.Argument(file_okay=False, help="Where to write them; made if it is not there.")],
    url: Annotated[str, typer.Option(envvar="PKGREPO_URL", help="https://host/tenant, or https://host/client/api.")],
    package: Annotated[list[str] | None, typer.Option(help="A package's id; else all packages.")] = None,
    patience: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long to go on trying without progress.")
    ] = 600,
    ca_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="The certificates to trust, in PEM.")
    ] = None,
) -> None:
    """Write what winget is offered as its manifests, one folder for each version; prints the folders.

    Signs in as `pkgrepo publish` does. Addresses of installers that the server has are good for as long as it says.
    """
    credentials = load(Credentials)
    credentials.check()
    check_address(url)
    exported: list[ExportedManifest] = []
    finished: list[bool] = []

    async def work() -> None:
        async with asking(url, ca_file, credentials, patience) as interface:
            exported.extend(await ManifestExport(interface, folder).run(package or ()))
            finished.append(True)

    stamina.instrumentation.set_on_retry_hooks([say_that_it_is_tried_again])
    try:
        asyncio.run(until_stopped(work()))
    except Problem as problem:
        sys.exit(f"pkgrepo: {visible(told(problem, patience))}")
    if not finished:
        console.print("Stopped.")
        raise typer.Exit(INTERRUPTED)
    for manifest in exported:
        if manifest.problem:
            say(console, f"{manifest.package_id} {manifest.version}: {manifest.problem.detail}", "red")
        else:
            typer.echo(visible(manifest.folder))
    if any(manifest.problem for manifest in exported):
        raise typer.Exit(1)
