"""`pkgrepo manifests`: exports the catalog as winget manifests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.options import CaFile, RetryTimeout, Url, run_until_stopped
from deploy.cli.publish import console, open_client, problems_printed
from deploy.terminal import print_line, visible
from deploy.winget_manifests.exporter import ExportedManifest, ManifestExport


def manifests(
    folder: Annotated[Path, typer.Argument(file_okay=False, help="Target folder; created if it does not exist.")],
    url: Url,
    package: Annotated[list[str] | None, typer.Option(help="Package id. Default: all packages.")] = None,
    retry_timeout: RetryTimeout = 600,
    ca_file: CaFile = None,
) -> None:
    """Export the catalog as winget manifests, one folder for each version; prints the folders.

    Signs in like `pkgrepo publish`. The addresses of installers that the server stores expire.
    """

    async def work() -> Sequence[ExportedManifest]:
        async with open_client(url, ca_file, retry_timeout) as client:
            return await ManifestExport(client, folder).run(package or ())

    with problems_printed(retry_timeout):
        exported = run_until_stopped(work(), console)
    for manifest in exported:
        if manifest.problem:
            print_line(console, f"{manifest.package_id} {manifest.version}: {manifest.problem.detail}", "red")
        else:
            typer.echo(visible(manifest.folder))
    if any(manifest.problem for manifest in exported):
        raise typer.Exit(1)
