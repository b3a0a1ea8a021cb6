"""`pkgrepo publish` of installers, and `pkgrepo release` of versions through rings and gates, for use in a pipeline."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import stamina.instrumentation
import typer
from aiohttp import FormData
from typer import Argument, Option

from catalog_service.model.enumerations import Architecture, FileType, Locale, Scope, UpgradeBehavior
from common.errors import Problem
from common.settings import BadSetting, load
from deploy.cli.options import (
    RESUMES,
    AsJson,
    CaFile,
    ChunkSize,
    RetryTimeout,
    Url,
    as_command,
    console,
    error_console,
    run_until_stopped,
)
from deploy.publish import files as installer_files
from deploy.publish.client import Credentials, RetryingClient, open_http_client
from deploy.publish.files import InstallerOptions
from deploy.publish.model import NewPackage, NotPublished, Published, is_transient
from deploy.publish.previous_version import with_previous_values
from deploy.publish.publisher import Publisher
from deploy.publish.release_state import INFECTED, POLL_PAUSE, WAITS, Release, exit_status_of, wait_for_state
from deploy.terminal import json_text, print_line, show_progress, visible

PAGE_SIZE = 100  # versions of one request

releases = typer.Typer(no_args_is_help=True)


@asynccontextmanager
async def open_client(url: str, ca_file: Path | None, retry_timeout: float) -> AsyncIterator[RetryingClient]:
    """Open a client for a tenant's address with the credentials of the environment. Raises BadSetting."""
    credentials = load(Credentials)
    credentials.check()
    _check_address(url)
    async with open_http_client(url, ca_file, credentials) as client:
        yield RetryingClient(client, retry_timeout)


@contextmanager
def problems_printed(retry_timeout: float) -> Iterator[None]:
    """Print retries. A Problem ends the command with its text and its exit status."""
    stamina.instrumentation.set_on_retry_hooks([_print_retry])
    try:
        yield
    except Problem as problem:
        print_line(error_console, f"pkgrepo: {describe_problem(problem, retry_timeout)}")
        raise typer.Exit(exit_status_of(problem)) from None


def _check_address(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or not parts.path.strip("/"):
        raise BadSetting("--url: must be https://host/tenant, or https://host/client/api")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise BadSetting("--url: must not contain credentials or a query")


def _print_retry(details: stamina.instrumentation.RetryDetails) -> None:
    problem = details.caused_by
    reason = problem.detail if isinstance(problem, Problem) else type(problem).__name__
    print_line(error_console, f"{reason} Trying again in {details.wait_for:.0f} s.")


def describe_problem(problem: Problem, retry_timeout: float) -> str:
    """The reason of a failure, with advice if a later run may succeed."""
    return f"{problem.detail} Gave up after {retry_timeout:g} s. {RESUMES}" if is_transient(problem) else problem.detail


def with_client(command: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    """Make a command of a function whose first parameter is a client. It gets the options that open the client."""

    def run(*, url: Url, retry_timeout: RetryTimeout = 600, ca_file: CaFile = None, **values: object) -> None:
        async def work() -> None:
            async with open_client(url, ca_file, retry_timeout) as client:
                await command(client, **values)

        with problems_printed(retry_timeout):
            run_until_stopped(work(), error_console)

    return as_command(run, command, opened=1)


@with_client
async def publish(
    client: RetryingClient,
    files: Annotated[list[Path], Argument(exists=True, dir_okay=False, help="Installer files.")],
    package: Annotated[str, Option(help="Package id.")],
    version: Annotated[list[str], Option(help="Version; once, or once for each file.")],
    architecture: Annotated[
        list[Architecture] | None,
        Option(case_sensitive=False, help="Once, or once for each file. Default: from the file name, or x64."),
    ] = None,
    file_type: Annotated[
        list[FileType] | None,
        Option("--type", case_sensitive=False, help="Once, or once for each file. Default: from the suffix."),
    ] = None,
    product_code: Annotated[list[str] | None, Option(help="GUID in braces; once, or once for each file.")] = None,
    scope: Annotated[
        Scope | None,
        Option(case_sensitive=False, help="Install scope. Default: that of the newest version, or machine."),
    ] = None,
    locale: Annotated[
        Locale, Option(case_sensitive=False, metavar="LOCALE", help="Locale, such as de-DE.")
    ] = Locale.EN_US,
    channel: Annotated[str, Option(help="Release channel.")] = "stable",
    switch: Annotated[
        list[str] | None,
        Option(metavar="NAME=VALUE", help="Installer switch, such as silent=/S. Default: those of the newest version."),
    ] = None,
    nested_type: Annotated[
        FileType | None, Option(case_sensitive=False, help="Type of the installer in a ZIP.")
    ] = None,
    nested_path: Annotated[list[str] | None, Option(help="Path of the installer in a ZIP.")] = None,
    upgrade_code: Annotated[str, Option(help="Upgrade code, a GUID in braces.")] = "",
    package_family_name: Annotated[str, Option(help="Package family name of an MSIX.")] = "",
    upgrades: Annotated[UpgradeBehavior, Option(help="Upgrade behaviour.")] = UpgradeBehavior.INSTALL,
    needs_package: Annotated[list[str] | None, Option(metavar="ID[=MINIMUM]", help="Required package.")] = None,
    needs_feature: Annotated[list[str] | None, Option(help="Required Windows feature.")] = None,
    needs_library: Annotated[list[str] | None, Option(help="Required Windows library.")] = None,
    needs: Annotated[list[str] | None, Option(help="Other requirement.")] = None,
    package_name: Annotated[str, Option(help="Name of a new package; creates it if it does not exist.")] = "",
    publisher: Annotated[str, Option(help="Publisher of a new package.")] = "",
    description: Annotated[str, Option(help="Description of a new package.")] = "",
    logo: Annotated[
        Path | None, Option(exists=True, dir_okay=False, help="Logo of a new package, PNG or JPEG.")
    ] = None,
    no_wait: Annotated[
        bool,
        Option("--no-wait", help="Do not wait for the malware scan and other checks; a waiting version exits with 0."),
    ] = False,
    chunk_size: ChunkSize = 8,
    as_json: AsJson = False,
) -> None:
    """Publish installers as versions of a package; prints the UID of each version.

    Waits for the malware scan and other checks of the server, then says which ring is offered the version.
    Exit status: 0 offered to a ring, 1 not published, 3 infected, 4 waits for a gate.

    Uses the API token PKGREPO_TOKEN, or signs in with PKGREPO_USER and PKGREPO_PASSWORD (or PKGREPO_PASSWORD_FILE).
    Run the same command again after an interruption: it resumes. An existing version with the same bytes is a success.
    """
    more = [
        *installer_files.switches(switch or ()),
        *installer_files.package_dependencies(needs_package or ()),
        *(("dep_windows_features", name) for name in needs_feature or ()),
        *(("dep_windows_libraries", name) for name in needs_library or ()),
        *(("dep_external", name) for name in needs or ()),
        *(("file_nested_path", path) for path in nested_path or ()),
        ("upgradecode", upgrade_code),
        ("package_family_name", package_family_name),
        ("upgrades", upgrades),
    ]
    per_file = (version, architecture or (), file_type or (), product_code or ())
    installer_options = InstallerOptions(*per_file, scope or Scope.MACHINE, locale, channel, nested_type, more)
    installers = installer_files.installers(files, package, installer_options)
    new_package = _new_package(package_name, publisher, description, logo)
    if scope is None or not switch:
        installers = await with_previous_values(client, installers, scope=scope is None, switches=not switch)

    with show_progress(error_console) as rows:
        results = await Publisher(client, rows, chunk_size << 20).publish(package, new_package, installers)
    _report(results, client.retry_timeout, as_json=as_json)
    documents, statuses = [result.document() for result in results], set()
    for result, document in zip(results, documents, strict=True):
        if isinstance(result, NotPublished):
            statuses.add(exit_status_of(result.problem))
            continue
        polls = 0 if no_wait else int(client.retry_timeout / POLL_PAUSE)
        status, document["state"] = await wait_for_state(client, result.uid, polls)
        print_line(error_console, f"{result.installer.path}: {document['state']}")
        statuses.add(0 if no_wait and status == WAITS else status)
    if as_json:
        typer.echo(json_text(documents))
    if worst := next((status for status in (INFECTED, 1, WAITS) if status in statuses), 0):
        raise typer.Exit(worst)


def _new_package(name: str, publisher: str, description: str, logo: Path | None) -> NewPackage | None:
    if bool(name) != bool(publisher):
        raise BadSetting("--package-name and --publisher: give both to add a package that does not exist")
    if not name:
        return None
    return NewPackage(name, publisher, description, logo.read_bytes() if logo else b"")


def _report(results: Sequence[Published | NotPublished], retry_timeout: float, *, as_json: bool) -> None:
    """Print the result of each file."""
    for result in results:
        installer = result.installer
        if isinstance(result, NotPublished):
            print_line(error_console, f"{installer.path}: {describe_problem(result.problem, retry_timeout)}", "red")
            continue
        status = "is published" if result.created else "exists already with the same bytes"
        name = f"{installer.package_id} {installer.version} ({installer.architecture})"
        print_line(error_console, f"{installer.path}: {name} {status}.")
        for text in result.warnings:
            print_line(error_console, f"Warning: {text}", "yellow")
        for identity in result.shared:
            warning = f"has the same {identity['field']}; winget may offer one package to machines that have the other"
            print_line(error_console, f"Warning: the package {identity['package_id']} {warning}.", "yellow")
        if not as_json:
            typer.echo(visible(result.uid))


Uid = Annotated[str, Argument(metavar="UID", help="UID of the version, as `pkgrepo publish` prints it.")]
Reason = Annotated[str, Option(help="Reason, for the history.")]
Yes = Annotated[bool, Option("--yes", help="Do not show the effect and ask first, as on a terminal.")]
# Commands without options of their own: operation, form and help.
ACTIONS: Mapping[str, tuple[str, Mapping[str, str], str]] = {
    "pause": ("pause_version", {}, "Stop a version where it is."),
    "resume": ("resume_version", {}, "End the stop of a version."),
    "pin": ("pin_version", {"pinned": "1"}, "Protect a version from retention."),
    "unpin": ("pin_version", {"pinned": "0"}, "End the protection of a version from retention."),
}


@releases.command("list")
@with_client
async def list_releases(
    client: RetryingClient,
    everything: Annotated[bool, Option("--all", help="Also versions in the last ring.")] = False,
    package: Annotated[str, Option(help="Package id.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the versions that have not entered the last ring, or that are stopped; one line each."""
    rows: list[Release] = []
    query = {"state": "all" if everything else "in_flight", "package_id": package, "limit": str(PAGE_SIZE)}
    while True:
        part = await client.request("GET", "find_releases", query={**query, "offset": str(len(rows))})
        rows += part["releases"]
        if not part["releases"] or len(rows) >= part["total"]:
            break
    if as_json:
        typer.echo(json_text(rows))
        return
    for row in rows:
        print_line(console, f"{row['uid']} {_state(row)}")


@releases.command("show")
@with_client
async def show_release(client: RetryingClient, uid: Uid, as_json: AsJson = False) -> None:
    """Show the rings and gates of a version."""
    release = await client.request("GET", "get_release", uid)
    if as_json:
        typer.echo(json_text(release))
        return
    print_line(console, _state(release))
    if release.get("edited_at"):
        print_line(console, f"edited at {release['edited_at']}; approvals before that do not count")
    for ring in release["rings"]:
        state = f"offered since {ring['entered_at']}" if ring["offered"] and ring["entered_at"] else "offered"
        print_line(console, f"{ring['ring']}: {state if ring['offered'] else 'not offered'}")
        for gate in ring["gates"]:
            print_line(console, f"  {gate['gate']} {gate['state']}: {gate['reason']}".removesuffix(": "))


@releases.command("approve")
@with_client
async def approve(
    client: RetryingClient,
    uid: Uid,
    edited_at: Annotated[
        str | None,
        Option(metavar="TIME", help="`edited_at` of the version that you have seen. Default: the present one."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Approve a version. The approval of its publisher, or of somebody who edited it, does not count."""
    if edited_at is None:
        edited_at = (await client.request("GET", "get_release", uid)).get("edited_at")
    # A catalog service of the release before has no such field.
    form = {} if edited_at is None else {"edited_at": edited_at}
    await _change(client, uid, "approve_version", form, as_json=as_json)


@releases.command("promote")
@with_client
async def promote(
    client: RetryingClient,
    uid: Uid,
    ring: Annotated[str, Option(help="Ring to enter. Default: the next one.")] = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let a version enter a ring; exit status 3 for an infected file, 4 while a gate waits."""
    if not ring:
        release = await client.request("GET", "get_release", uid)
        ring = release["next_ring"] or release["stage"]
    await _confirm_effect(client, uid, "promote_version", {"ring": ring}, yes=yes)
    await _change(client, uid, "promote_version", {"ring": ring}, as_json=as_json)


@releases.command("hold")
@with_client
async def hold(client: RetryingClient, uid: Uid, reason: Reason, yes: Yes = False, as_json: AsJson = False) -> None:
    """Withdraw a version from all rings at once. Machines that already installed it are not changed."""
    await _confirm_effect(client, uid, "hold_version", {"reason": reason}, yes=yes)
    await _change(client, uid, "hold_version", {"reason": reason}, as_json=as_json)


@releases.command("roll-back")
@with_client
async def roll_back(
    client: RetryingClient, uid: Uid, reason: Reason = "", yes: Yes = False, as_json: AsJson = False
) -> None:
    """Withdraw a version and offer the one before. Machines that already installed it are not changed."""
    await _confirm_effect(client, uid, "roll_back_version", {"reason": reason}, yes=yes)
    await _change(client, uid, "roll_back_version", {"reason": reason}, as_json=as_json)


def _action(operation: str, form: Mapping[str, str]) -> Callable[..., None]:
    """A command that needs only the version."""

    @with_client
    async def run(client: RetryingClient, uid: Uid, as_json: AsJson = False) -> None:
        await _change(client, uid, operation, form, as_json=as_json)

    return run


for _name, (_operation, _form, _help) in ACTIONS.items():
    releases.command(_name, help=_help)(_action(_operation, _form))


async def _confirm_effect(
    client: RetryingClient, uid: str, operation: str, form: Mapping[str, str], *, yes: bool
) -> None:
    """Show what each ring would get, and ask; not with `yes`, and not where nobody can answer."""
    if yes or not sys.stdin.isatty():
        return
    answer = await client.request("POST", operation, uid, body=lambda _: FormData({**form, "preview": "true"}))
    for ring, version in answer["offered"].items():
        print_line(error_console, f"{ring} gets {version or 'no version'}.")
    if (await _answer_to("Go on?")).casefold() not in {"y", "yes"}:
        raise typer.Abort


async def _answer_to(question: str) -> str:
    """The answer of the user of the terminal. Unlike a thread that reads, it does not outlive Ctrl-C."""
    error_console.print(f"{question} [y/N]:", end=" ", markup=False)
    answered, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(sys.stdin, answered.set)
    try:
        await answered.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline().strip()


async def _change(client: RetryingClient, uid: str, operation: str, form: Mapping[str, str], *, as_json: bool) -> None:
    """Call an operation, and print the version's new state."""
    method = "PATCH" if operation == "pin_version" else "POST"
    answer = await client.request(method, operation, uid, body=lambda _: FormData(form))
    if as_json:
        typer.echo(json_text(answer))
        return
    print_line(console, _state(answer["release"]))
    for ring, version in answer.get("offered", {}).items():
        print_line(console, f"{ring}: {version or 'no version'}")


def _state(release: Release) -> str:
    """A version in one line: its name, its status, and what the next ring waits for."""
    name = f"{release['package_id']} {release['version']} ({release['file_architect']}, {release['channel']})"
    status = release["status"].replace("_", " ") + (f" ({release['reason']})" if release["reason"] else "")
    text = f"{name}: {status}, in {release['stage'] or 'no ring'}"
    if not release["next_ring"]:
        return text
    gates = [gate for ring in release["rings"] if ring["ring"] == release["next_ring"] for gate in ring["gates"]]
    open_gates = ", ".join(f"{gate['gate']} {gate['state']}" for gate in gates if gate["state"] != "passed")
    return f"{text}; next {release['next_ring']}: {open_gates}".removesuffix(": ")
