"""`pkgrepo import`: imports winget manifests with their installers into a tenant, or a tenant from its archive."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated

import stamina.instrumentation
import typer

from common.errors import Problem
from common.http.server import until_stopped
from common.settings import BadSetting, load
from deploy.cli.backup import import_tenant
from deploy.cli.options import INTERRUPTED, RESUMES
from deploy.cli.publish import check_address, console, describe_problem, open_interface, report_retry
from deploy.publish.publisher import AT_ONCE, Publisher
from deploy.publish.session import Credentials
from deploy.tenant_archive.archive import is_archive
from deploy.terminal import json_text, print_line, show_progress, visible
from deploy.winget_import.fetcher import open_fetcher
from deploy.winget_import.importer import DryRun, ManifestImport
from deploy.winget_import.manifest_tree import SUFFIXES, find_manifests
from deploy.winget_import.networks import Network, Networks
from deploy.winget_import.report import Outcome, Row, summary
from deploy.winget_import.sources import InstallersFolder, InstallerSources

MANIFESTS = "Options for manifests"
ARCHIVES = "Options for an archive"
ARCHIVE_OPTIONS = frozenset(["data"])
OPTION_NAMES = {"as_json": "--json", "timeout": "--patience"}


def import_paths(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(help="Manifests, folders of manifests, or the archive of one tenant.")],
    url: Annotated[
        str, typer.Option(envvar="PKGREPO_URL", help="https://host/tenant.", rich_help_panel=MANIFESTS)
    ] = "",
    installers: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Folder of the installers.", rich_help_panel=MANIFESTS),
    ] = None,
    fetch: Annotated[
        bool,
        typer.Option("--fetch", help="Download missing installers.", rich_help_panel=MANIFESTS),
    ] = False,
    keep_addresses: Annotated[
        bool,
        typer.Option(
            "--keep-addresses",
            help="Do not store the installers: clients download them from their addresses.",
            rich_help_panel=MANIFESTS,
        ),
    ] = False,
    allow_network: Annotated[
        list[str] | None,
        typer.Option(metavar="CIDR", help="Also download from this private network.", rich_help_panel=MANIFESTS),
    ] = None,
    max_size: Annotated[
        int, typer.Option(min=1, metavar="MIB", help="Largest download.", rich_help_panel=MANIFESTS)
    ] = 4096,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be published.", rich_help_panel=MANIFESTS)
    ] = False,
    at_once: Annotated[int, typer.Option(min=1, max=32, help="Parallel uploads.", rich_help_panel=MANIFESTS)] = AT_ONCE,
    chunk_size: Annotated[
        int, typer.Option(min=1, max=64, metavar="MIB", help="Chunk size.", rich_help_panel=MANIFESTS)
    ] = 8,
    timeout: Annotated[
        float,
        typer.Option(
            "--patience",
            min=1,
            metavar="SECONDS",
            help="Time limit of retries without progress.",
            rich_help_panel=MANIFESTS,
        ),
    ] = 600,
    ca_file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Trusted certificates, PEM.", rich_help_panel=MANIFESTS),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on standard output.", rich_help_panel=MANIFESTS)
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a running `pkgrepo up`. Default: the settings MONGO_URL, REDIS_URL and AUDIT_KEY.",
            rich_help_panel=ARCHIVES,
        ),
    ] = None,
) -> None:
    """Publish the installers of winget manifests, or import a tenant from its archive.

    Manifests are files, or folders such as a clone of a manifest repository. They are published like `pkgrepo publish`
    does, with the same environment variables. Run the same command again after an interruption: it skips existing
    versions with the same SHA-256.

    An archive is imported while the services run. The archive's maker can sign in to that tenant.
    """
    if archive := _archive(paths):
        _check_options(context, for_archive=True)
        import_tenant(archive, data)
        return
    _check_options(context, for_archive=False)
    for path in paths:
        if not path.exists():
            raise BadSetting(f"{path}: does not exist")
    if keep_addresses is bool(installers or fetch):
        raise BadSetting("give --installers or --fetch, or --keep-addresses to leave the installers at their addresses")
    networks = Networks([_network(text) for text in allow_network or ()])
    credentials = load(Credentials)
    credentials.check()
    check_address(url)
    work: list[ManifestImport] = []

    async def run() -> None:
        async with AsyncExitStack() as stack:
            interface = await stack.enter_async_context(open_interface(url, ca_file, credentials, timeout))
            progress = stack.enter_context(show_progress(console, keep=False))
            fetcher = await stack.enter_async_context(open_fetcher(networks, ca_file, max_size << 20))
            sources = InstallerSources(InstallersFolder(installers) if installers else None, fetcher if fetch else None)
            publisher = Publisher(interface, progress, chunk_size << 20, at_once=at_once, open_installer=sources.open)
            one = await interface.one_installer_a_version()
            publish = DryRun(interface, sources).publish if dry_run else publisher.publish
            work.append(
                ManifestImport(publish, one_installer_a_version=one, at_once=at_once, keep_addresses=keep_addresses)
            )
            await work[0].run(find_manifests(paths))
            finished.append(True)

    finished: list[bool] = []
    stamina.instrumentation.set_on_retry_hooks([report_retry])
    try:
        asyncio.run(until_stopped(run()))
    except Problem as problem:
        sys.exit(f"pkgrepo: {visible(describe_problem(problem, timeout))}")
    rows = work[0].rows if work else []
    _report(rows, timeout, as_json=as_json)
    if not finished:
        console.print(f"Stopped. {RESUMES}")
        raise typer.Exit(INTERRUPTED)
    if gave_up := work[0].gave_up:
        sys.exit(f"pkgrepo: {visible(describe_problem(gave_up, timeout))}")
    if not rows:
        raise BadSetting("the paths contain no manifests")
    if any(row.outcome is Outcome.REFUSED for row in rows):
        raise typer.Exit(1)


def _archive(paths: Sequence[Path]) -> Path | None:
    """The archive, if the path is one; also for a file that is neither, so that the reader reports the error."""
    [first, *others] = paths
    named = not others and not first.is_dir() and first.suffix.lower() not in SUFFIXES
    return first if named or (not others and first.is_file() and is_archive(first)) else None


def _network(text: str) -> Network:
    """Raises BadSetting."""
    try:
        return ip_network(text)
    except ValueError:
        raise BadSetting(f"--allow-network: {text}: must be a network such as 10.1.0.0/16") from None


def _check_options(context: typer.Context, *, for_archive: bool) -> None:
    """Raise BadSetting for options of the other kind."""
    for name in context.params:
        source = context.get_parameter_source(name)
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and name != "paths" and (name in ARCHIVE_OPTIONS) is not for_archive:
            option = OPTION_NAMES.get(name, f"--{name.replace('_', '-')}")
            raise BadSetting(
                f"{option}: cannot be used with {'the archive of a tenant' if for_archive else 'manifests'}"
            )


def _report(rows: Sequence[Row], timeout: float, *, as_json: bool) -> None:
    """Print the result of each installer."""
    for row in rows:
        if row.problem:
            print_line(console, f"{row.manifest}: {row.label}: {describe_problem(row.problem, timeout)}", "red")
        for note in row.notes:
            print_line(console, f"{row.manifest}: {row.label}: {note}")
    counts = summary(rows)
    console.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "Nothing.")
    if as_json:
        typer.echo(json_text({**counts, "installers": [row.document() for row in rows]}))
    else:
        for row in rows:
            if row.uid:
                typer.echo(visible(row.uid))
