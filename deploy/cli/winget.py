"""`pkgrepo import` of winget manifests or the archive of a tenant, and `pkgrepo manifests`, the export of manifests."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from common.settings import BadSetting
from deploy.backup.archive import is_archive
from deploy.backup.records import Passphrase
from deploy.cli.backup import SEAL_HELP, import_tenant
from deploy.cli.options import (
    DATA_HELP,
    INTERRUPTED,
    RESUMES,
    AsJson,
    CaFile,
    ChunkSize,
    RetryTimeout,
    Url,
    error_console,
    run_interruptible,
)
from deploy.cli.publish import describe_problem, open_client, problems_printed, with_client
from deploy.publish.client import RetryingClient
from deploy.publish.publisher import AT_ONCE, Publisher
from deploy.terminal import json_text, print_line, show_progress, visible
from deploy.winget_manifests.exporter import ManifestExport
from deploy.winget_manifests.importer import DryRun, ManifestImport, Outcome, Row, summary
from deploy.winget_manifests.manifest import SUFFIXES, find_manifests
from deploy.winget_manifests.sources import InstallersFolder, InstallerSources, open_fetcher

ARCHIVE_OPTIONS = frozenset(["data", "passphrase_file"])
ARCHIVE_PANEL = "Options for an archive"


def import_paths(
    context: typer.Context,
    paths: Annotated[list[Path], Argument(help="Manifests, folders of manifests, or the archive of one tenant.")],
    url: Url = "",
    installers: Annotated[Path | None, Option(exists=True, file_okay=False, help="Folder of the installers.")] = None,
    fetch: Annotated[bool, Option("--fetch", help="Download missing installers.")] = False,
    keep_addresses: Annotated[
        bool,
        Option("--keep-addresses", help="Do not store the installers: clients download them from their addresses."),
    ] = False,
    allow_network: Annotated[
        list[str] | None, Option(metavar="CIDR", help="Also download from this private network.")
    ] = None,
    max_size: Annotated[int, Option(min=1, metavar="MIB", help="Largest download.")] = 4096,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would be published.")] = False,
    at_once: Annotated[int, Option(min=1, max=32, help="Parallel uploads.")] = AT_ONCE,
    chunk_size: ChunkSize = 8,
    retry_timeout: RetryTimeout = 600,
    ca_file: CaFile = None,
    as_json: AsJson = False,
    passphrase_file: Annotated[
        typer.FileText | None, Option(help=SEAL_HELP, metavar="FILE", rich_help_panel=ARCHIVE_PANEL)
    ] = None,
    data: Annotated[Path | None, Option(help=DATA_HELP, rich_help_panel=ARCHIVE_PANEL)] = None,
) -> None:
    """Publish the installers of winget manifests, or import a tenant from its archive.

    Manifests are files, or folders such as a clone of a manifest repository. They are published like `pkgrepo publish`
    does, with the same environment variables. Run the same command again after an interruption: it skips existing
    versions with the same SHA-256.

    An archive is imported while the services run. It must have been exported with the same passphrase.
    """
    if archive := _archive(paths):
        _check_options(context, for_archive=True)
        if not passphrase_file:
            raise BadSetting("--passphrase-file: is required, with the passphrase of the archive's export")
        import_tenant(archive, Passphrase.read(passphrase_file), data)
        return
    _check_options(context, for_archive=False)
    for path in paths:
        if not path.exists():
            raise BadSetting(f"{path}: does not exist")
    if keep_addresses is bool(installers or fetch):
        raise BadSetting("give --installers or --fetch, or --keep-addresses to leave the installers at their addresses")
    networks = tuple(map(_network, allow_network or ()))
    imports: list[ManifestImport] = []

    async def work() -> None:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(open_client(url, ca_file, retry_timeout))
            progress = stack.enter_context(show_progress(error_console, keep=False))
            fetcher = await stack.enter_async_context(open_fetcher(networks, ca_file, max_size << 20))
            sources = InstallerSources(InstallersFolder(installers) if installers else None, fetcher if fetch else None)
            publisher = Publisher(client, progress, chunk_size << 20, at_once=at_once, open_installer=sources.open)
            one = await client.one_installer_a_version()
            publish = DryRun(client, sources).publish if dry_run else publisher.publish
            imports.append(
                ManifestImport(publish, one_installer_a_version=one, at_once=at_once, keep_addresses=keep_addresses)
            )
            await imports[0].run(find_manifests(paths))

    with problems_printed(retry_timeout):
        finished = run_interruptible(work())
        rows = imports[0].rows if imports else []
        _report(rows, retry_timeout, as_json=as_json)
        if not finished:
            error_console.print(f"Stopped. {RESUMES}")
            raise typer.Exit(INTERRUPTED)
        if gave_up := imports[0].gave_up:
            raise gave_up
    if not rows:
        raise BadSetting("the paths contain no manifests")
    if any(row.outcome is Outcome.REFUSED for row in rows):
        raise typer.Exit(1)


@with_client
async def manifests(
    client: RetryingClient,
    folder: Annotated[Path, Argument(file_okay=False, help="Target folder; created if it does not exist.")],
    package: Annotated[list[str] | None, Option(help="Package id. Default: all packages.")] = None,
) -> None:
    """Export the catalog as winget manifests, one folder for each version; prints the folders.

    Signs in like `pkgrepo publish`. The addresses of installers that the server stores expire.
    """
    exported = await ManifestExport(client, folder).run(package or ())
    for manifest in exported:
        if manifest.problem:
            print_line(error_console, f"{manifest.package_id} {manifest.version}: {manifest.problem.detail}", "red")
        else:
            typer.echo(visible(manifest.folder))
    if any(manifest.problem for manifest in exported):
        raise typer.Exit(1)


def _archive(paths: Sequence[Path]) -> Path | None:
    """The archive, if the path is one; also for a file that is neither, so that the reader reports the error."""
    [first, *others] = paths
    named = not others and not first.is_dir() and first.suffix.lower() not in SUFFIXES
    return first if named or (not others and first.is_file() and is_archive(first)) else None


def _network(text: str) -> str:
    """The network in its usual spelling. Raises BadSetting."""
    try:
        return str(ip_network(text))
    except ValueError:
        raise BadSetting(f"--allow-network: {text}: must be a network such as 10.1.0.0/16") from None


def _check_options(context: typer.Context, *, for_archive: bool) -> None:
    """Raise BadSetting for options of the other kind."""
    for parameter in context.command.params:
        source = context.get_parameter_source(name := parameter.name or "")
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and name != "paths" and (name in ARCHIVE_OPTIONS) is not for_archive:
            kind = "the archive of a tenant" if for_archive else "manifests"
            raise BadSetting(f"{parameter.opts[0]}: cannot be used with {kind}")


def _report(rows: Sequence[Row], retry_timeout: float, *, as_json: bool) -> None:
    for row in rows:
        if row.problem:
            print_line(error_console, f"{row.label}: {describe_problem(row.problem, retry_timeout)}", "red")
        for note in row.notes:
            print_line(error_console, f"{row.label}: {note}")
    counts = summary(rows)
    error_console.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "Nothing.")
    if as_json:
        typer.echo(json_text({**counts, "installers": [row.document() for row in rows]}))
    else:
        for row in rows:
            if row.uid:
                typer.echo(visible(row.uid))
