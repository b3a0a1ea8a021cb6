"""`pkgrepo import`: imports winget manifests with their installers, or a tenant's archive."""

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
from deploy.cli.publish import INTERRUPTED, RESUMES, asking, check_address, console, say_that_it_is_tried_again, told
from deploy.publish.progress import shown
from deploy.publish.publisher import AT_ONCE, Publisher
from deploy.publish.session import Credentials
from deploy.publish.terminal import json_text, say, visible
from deploy.tenant_archive.archive import is_archive
from deploy.winget_import.fetcher import open_fetcher
from deploy.winget_import.importer import DryRun, ManifestImport
from deploy.winget_import.manifest_tree import SUFFIXES, find_manifests
from deploy.winget_import.networks import Network, Networks
from deploy.winget_import.report import Outcome, Row, summary
from deploy.winget_import.sources import InstallersFolder, InstallerSources

MANIFESTS = "Options of manifests"
ARCHIVES = "Options of an archive"
OF_ARCHIVES = frozenset(["data"])


def import_paths(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(help="Manifests, folders of them, or the archive of one tenant.")],
    url: Annotated[
        str, typer.Option(envvar="PKGREPO_URL", help="https://host/tenant.", rich_help_panel=MANIFESTS)
    ] = "",
    installers: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Where the installers are.", rich_help_panel=MANIFESTS),
    ] = None,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Fetch what is not there from its address.", rich_help_panel=MANIFESTS)
    ] = False,
    keep_addresses: Annotated[
        bool,
        typer.Option(
            "--keep-addresses",
            help="Leave the installers where they are: clients fetch them from there.",
            rich_help_panel=MANIFESTS,
        ),
    ] = False,
    allow_network: Annotated[
        list[str] | None,
        typer.Option(metavar="CIDR", help="Fetch from there too, though it is not public.", rich_help_panel=MANIFESTS),
    ] = None,
    max_size: Annotated[
        int, typer.Option(min=1, metavar="MIB", help="Fetch nothing larger.", rich_help_panel=MANIFESTS)
    ] = 4096,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be published.", rich_help_panel=MANIFESTS)
    ] = False,
    at_once: Annotated[
        int, typer.Option(min=1, max=32, help="Installers that are sent at once.", rich_help_panel=MANIFESTS)
    ] = AT_ONCE,
    chunk_size: Annotated[
        int, typer.Option(min=1, max=64, metavar="MIB", help="What is sent at once.", rich_help_panel=MANIFESTS)
    ] = 8,
    patience: Annotated[
        float,
        typer.Option(
            min=1, metavar="SECONDS", help="How long to go on trying without progress.", rich_help_panel=MANIFESTS
        ),
    ] = 600,
    ca_file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="The certificates to trust, in PEM.", rich_help_panel=MANIFESTS),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on the standard output.", rich_help_panel=MANIFESTS)
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The folder of a running `pkgrepo up`; else MONGO_URL and REDIS_URL.", rich_help_panel=ARCHIVES
        ),
    ] = None,
) -> None:
    """Publish what winget's manifests name, or bring a tenant in from its archive.

    Manifests are files, or folders such as a clone of a tree of manifests, published as `pkgrepo publish` does and with
    its variables. Run again after a break, it goes on: what is there with the same SHA-256 is left alone.

    An archive is brought in beside running services. Whoever made it can sign in to that tenant.
    """
    if archive := _archive(paths):
        _check_options(context, of_archives=True)
        import_tenant(archive, data)
        return
    _check_options(context, of_archives=False)
    for path in paths:
        if not path.exists():
            raise BadSetting(f"{path}: is not there")
    if keep_addresses is bool(installers or fetch):
        raise BadSetting(
            "--installers, --fetch, --keep-addresses: say where the installers come from, or that they stay"
        )
    networks = Networks([_network(text) for text in allow_network or ()])
    credentials = load(Credentials)
    credentials.check()
    check_address(url)
    work: list[ManifestImport] = []

    async def run() -> None:
        async with AsyncExitStack() as stack:
            interface = await stack.enter_async_context(asking(url, ca_file, credentials, patience))
            progress = stack.enter_context(shown(console, keep=False))
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
    stamina.instrumentation.set_on_retry_hooks([say_that_it_is_tried_again])
    try:
        asyncio.run(until_stopped(run()))
    except Problem as problem:
        sys.exit(f"pkgrepo: {visible(told(problem, patience))}")
    rows = work[0].rows if work else []
    _report(rows, patience, as_json=as_json)
    if not finished:
        console.print(f"Stopped. {RESUMES}")
        raise typer.Exit(INTERRUPTED)
    if gave_up := work[0].gave_up:
        sys.exit(f"pkgrepo: {visible(told(gave_up, patience))}")
    if not rows:
        raise BadSetting("there are no manifests")
    if any(row.outcome is Outcome.REFUSED for row in rows):
        raise typer.Exit(1)


def _archive(paths: Sequence[Path]) -> Path | None:
    """Return the path of an archive, if the paths are one. A file of another kind counts as an archive."""
    [first, *others] = paths
    is_other_file = not others and not first.is_dir() and first.suffix.lower() not in SUFFIXES
    return first if is_other_file or (not others and first.is_file() and is_archive(first)) else None


def _network(text: str) -> Network:
    """Raises BadSetting."""
    try:
        return ip_network(text)
    except ValueError:
        raise BadSetting(f"--allow-network: {text}: must be a network such as 10.1.0.0/16") from None


def _check_options(context: typer.Context, *, of_archives: bool) -> None:
    """Raise BadSetting for options of the other kind of import."""
    for name in context.params:
        source = context.get_parameter_source(name)
        is_set = source is not None and source.name == "COMMANDLINE"
        if is_set and name != "paths" and (name in OF_ARCHIVES) is not of_archives:
            option = "--json" if name == "as_json" else f"--{name.replace('_', '-')}"
            raise BadSetting(f"{option}: is not for {'the archive of a tenant' if of_archives else 'manifests'}")


def _report(rows: Sequence[Row], patience: float, *, as_json: bool) -> None:
    """Print the report."""
    for row in rows:
        if row.problem:
            say(console, f"{row.manifest}: {row.label}: {told(row.problem, patience)}", "red")
        for note in row.notes:
            say(console, f"{row.manifest}: {row.label}: {note}")
    counts = summary(rows)
    console.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "Nothing.")
    if as_json:
        typer.echo(json_text({**counts, "installers": [row.document() for row in rows]}))
    else:
        for row in rows:
            if row.uid:
                typer.echo(visible(row.uid))
