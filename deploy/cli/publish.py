"""`pkgrepo publish`: installers into a package, from a pipeline."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import stamina.instrumentation
import typer
from rich.console import Console

from catalog_service.model.enumerations import Architecture, FileType, Locale, Scope, UpgradeBehavior
from common.errors import Problem
from common.http.server import until_stopped
from common.settings import BadSetting, load
from deploy.publish import choices
from deploy.publish.choices import ForAll, PerFile
from deploy.publish.interface import Interface
from deploy.publish.model import NewPackage, NotPublished, Published
from deploy.publish.problems import may_pass
from deploy.publish.progress import shown
from deploy.publish.publisher import Publisher
from deploy.publish.server import open_server
from deploy.publish.session import Credentials, open_session
from deploy.publish.terminal import json_text, say, visible

INTERRUPTED = 130  # what a shell gives for Ctrl-C
RESUMES = "The same command goes on from where the server stands."

console = Console(stderr=True, highlight=False, soft_wrap=True)


def publish(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="The installers.")],
    package: Annotated[str, typer.Option(help="The package's id.")],
    version: Annotated[list[str], typer.Option(help="The version; once, or once for each file.")],
    url: Annotated[str, typer.Option(envvar="PKGREPO_URL", help="https://host/tenant, or https://host/client/api.")],
    architecture: Annotated[
        list[Architecture] | None,
        typer.Option(case_sensitive=False, help="Once, or once for each file; else what the file's name says, or x64."),
    ] = None,
    file_type: Annotated[
        list[FileType] | None,
        typer.Option("--type", case_sensitive=False, help="Once, or once for each file; else what the suffix says."),
    ] = None,
    product_code: Annotated[
        list[str] | None, typer.Option(help="A GUID in braces; once, or once for each file.")
    ] = None,
    scope: Annotated[Scope, typer.Option(case_sensitive=False, help="Whom it is installed for.")] = Scope.MACHINE,
    locale: Annotated[
        Locale, typer.Option(case_sensitive=False, metavar="LOCALE", help="Such as de-DE.")
    ] = Locale.EN_US,
    channel: Annotated[str, typer.Option(help="The release channel.")] = "stable",
    switch: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Such as silent=/S.")] = None,
    nested_type: Annotated[
        FileType | None, typer.Option(case_sensitive=False, help="Of the installer in a ZIP.")
    ] = None,
    nested_path: Annotated[list[str] | None, typer.Option(help="Where it is in the ZIP.")] = None,
    upgrade_code: Annotated[str, typer.Option(help="A GUID in braces.")] = "",
    package_family_name: Annotated[str, typer.Option(help="Of an MSIX.")] = "",
    upgrades: Annotated[
        UpgradeBehavior, typer.Option(help="What becomes of an earlier version.")
    ] = UpgradeBehavior.INSTALL,
    needs_package: Annotated[
        list[str] | None, typer.Option(metavar="ID[=MINIMUM]", help="A package that must be there.")
    ] = None,
    needs_feature: Annotated[list[str] | None, typer.Option(help="A Windows feature that must be on.")] = None,
    needs_library: Annotated[list[str] | None, typer.Option(help="A Windows library that must be there.")] = None,
    needs: Annotated[list[str] | None, typer.Option(help="What else must be there.")] = None,
    package_name: Annotated[str, typer.Option(help="Adds the package where it does not exist.")] = "",
    publisher: Annotated[str, typer.Option(help="Of the package to add.")] = "",
    description: Annotated[str, typer.Option(help="Of the package to add.")] = "",
    logo: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Of the package to add; PNG or JPEG.")
    ] = None,
    chunk_size: Annotated[int, typer.Option(min=1, max=64, metavar="MIB", help="What is sent at once.")] = 8,
    patience: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long to go on trying without progress.")
    ] = 600,
    ca_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="The certificates to trust, in PEM.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on the standard output.")] = False,
) -> None:
    """Publish installers as versions of a package; prints the UID of each.

    Signs in with PKGREPO_USER and PKGREPO_PASSWORD (or PKGREPO_PASSWORD_FILE), or takes the session of PKGREPO_TOKEN.
    Run again after a break, it goes on from where the server stands; a version that is there already, with the same
    bytes, is a success.
    """
    more = [
        *choices.switches(switch or ()),
        *choices.packages_needed(needs_package or ()),
        *(("dep_windows_features", name) for name in needs_feature or ()),
        *(("dep_windows_libraries", name) for name in needs_library or ()),
        *(("dep_external", name) for name in needs or ()),
        *(("file_nested_path", path) for path in nested_path or ()),
        ("upgradecode", upgrade_code),
        ("package_family_name", package_family_name),
        ("upgrades", upgrades),
    ]
    per_file = PerFile(version, architecture or (), file_type or (), product_code or ())
    installers = choices.installers(files, package, per_file, ForAll(scope, locale, channel, nested_type, tuple(more)))
    new_package = _new_package(package_name, publisher, description, logo)
    credentials = load(Credentials)
    credentials.check()
    check_address(url)
    done: list[Published | NotPublished] = []

    async def work() -> None:
        async with asking(url, ca_file, credentials, patience) as interface:
            with shown(console) as progress:
                publishing = Publisher(interface, progress, chunk_size << 20)
                done.extend(await publishing.publish(package, new_package, installers))

    stamina.instrumentation.set_on_retry_hooks([say_that_it_is_tried_again])
    try:
        asyncio.run(until_stopped(work()))
    except Problem as problem:
        sys.exit(f"pkgrepo: {visible(told(problem, patience))}")
    if not done:
        console.print(f"Stopped. {RESUMES}")
        raise typer.Exit(INTERRUPTED)
    _report(done, patience, as_json=as_json)


def _new_package(name: str, publisher: str, description: str, logo: Path | None) -> NewPackage | None:
    if bool(name) != bool(publisher):
        raise BadSetting("--package-name and --publisher: give both to add a package that does not exist")
    if not name:
        return None
    return NewPackage(name, publisher, description, logo.read_bytes() if logo else b"")


@asynccontextmanager
async def asking(url: str, ca_file: Path | None, credentials: Credentials, patience: float) -> AsyncIterator[Interface]:
    """The interface at an address, for who has these credentials."""
    async with open_server(url, ca_file) as server, open_session(server, credentials) as session:
        yield Interface(session, patience)


def check_address(url: str) -> None:
    """Raise BadSetting where it is none of a tenant's."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or not parts.path.strip("/"):
        raise BadSetting("--url: must be https://host/tenant, or https://host/client/api")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise BadSetting("--url: must hold neither credentials nor a query")


def say_that_it_is_tried_again(details: stamina.instrumentation.RetryDetails) -> None:
    """Tell people why they wait."""
    problem = details.caused_by
    said = problem.detail if isinstance(problem, Problem) else type(problem).__name__
    say(console, f"{said} Trying again in {details.wait_for:.0f} s.")


def told(problem: Problem, patience: float) -> str:
    """Why a file is not published, and what to do where it is a matter of time."""
    return f"{problem.detail} Gave up after {patience:g} s. {RESUMES}" if may_pass(problem) else problem.detail


def _report(done: Sequence[Published | NotPublished], patience: float, *, as_json: bool) -> None:
    """Say what came of each file. Raises typer.Exit where not all are published."""
    for one in done:
        installer = one.installer
        if isinstance(one, NotPublished):
            say(console, f"{installer.path}: {told(one.problem, patience)}", "red")
            continue
        what = "is published" if one.created else "was there already, with the same bytes"
        say(console, f"{installer.path}: {installer.package_id} {installer.version} ({installer.architecture}) {what}.")
        if not as_json:
            typer.echo(visible(one.uid))
    if as_json:
        typer.echo(json_text([one.document() for one in done]))
    if any(isinstance(one, NotPublished) for one in done):
        raise typer.Exit(1)
