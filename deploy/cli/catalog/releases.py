"""`pkgrepo release`: the way of versions through rings and gates, for use in a pipeline."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from common.errors import UpstreamProblem
from deploy.cli.catalog.publish import open_client, problems_printed
from deploy.cli.options import AsJson, CaFile, RetryTimeout, Url, console, error_console, run_until_stopped
from deploy.terminal import json_text, print_line

GATE_WAITS = 3  # exit status
PAGE_SIZE = 100  # versions of one request

releases = typer.Typer(no_args_is_help=True)

Uid = Annotated[str, Argument(metavar="UID", help="UID of the version, as `pkgrepo publish` prints it.")]
Reason = Annotated[str, Option(help="Reason, for the history.")]
Release = Mapping[str, Any]
# Commands without options of their own: operation, form and help.
ACTIONS: Mapping[str, tuple[str, Mapping[str, str], str]] = {
    "approve": ("approve_version", {}, "Approve the file of a version. The publisher's approval does not count."),
    "pause": ("pause_version", {}, "Stop a version where it is."),
    "resume": ("resume_version", {}, "End the stop of a version."),
    "pin": ("pin_version", {"pinned": "1"}, "Protect a version from retention."),
    "unpin": ("pin_version", {"pinned": "0"}, "End the protection of a version from retention."),
}


@releases.command("list")
def list_releases(
    url: Url,
    everything: Annotated[bool, Option("--all", help="Also versions in the last ring.")] = False,
    package: Annotated[str, Option(help="Package id.")] = "",
    retry_timeout: RetryTimeout = 600,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """List the versions that have not entered the last ring, or that are stopped; one line each."""
    rows: list[Release] = []
    query = {"state": "all" if everything else "in_flight", "package_id": package, "limit": str(PAGE_SIZE)}
    while True:
        part = _call(url, ca_file, retry_timeout, "GET", "find_releases", query={**query, "offset": str(len(rows))})
        rows += part["releases"]
        if not part["releases"] or len(rows) >= part["total"]:
            break
    if as_json:
        typer.echo(json_text(rows))
        return
    for row in rows:
        print_line(console, f"{row['uid']} {_state(row)}")


@releases.command("show")
def show_release(
    uid: Uid, url: Url, retry_timeout: RetryTimeout = 600, ca_file: CaFile = None, as_json: AsJson = False
) -> None:
    """Show the rings and gates of a version."""
    release = _call(url, ca_file, retry_timeout, "GET", "get_release", uid)
    if as_json:
        typer.echo(json_text(release))
        return
    print_line(console, _state(release))
    for ring in release["rings"]:
        state = f"offered since {ring['entered_at']}" if ring["offered"] and ring["entered_at"] else "offered"
        print_line(console, f"{ring['ring']}: {state if ring['offered'] else 'not offered'}")
        for gate in ring["gates"]:
            print_line(console, f"  {gate['gate']} {gate['state']}: {gate['reason']}".removesuffix(": "))


@releases.command("promote")
def promote(
    uid: Uid,
    url: Url,
    ring: Annotated[str, Option(help="Ring to enter. Default: the next one.")] = "",
    retry_timeout: RetryTimeout = 600,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Let a version enter a ring; exit status 3 while a gate waits."""
    if not ring:
        release = _call(url, ca_file, retry_timeout, "GET", "get_release", uid)
        ring = release["next_ring"] or release["stage"]
    _write(uid, "promote_version", {"ring": ring}, url, ca_file, retry_timeout, as_json=as_json)


@releases.command("hold")
def hold(
    uid: Uid,
    url: Url,
    reason: Reason,
    retry_timeout: RetryTimeout = 600,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Withdraw a version from all rings at once. Machines that have it keep it."""
    _write(uid, "hold_version", {"reason": reason}, url, ca_file, retry_timeout, as_json=as_json)


@releases.command("roll-back")
def roll_back(
    uid: Uid,
    url: Url,
    reason: Reason = "",
    retry_timeout: RetryTimeout = 600,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Withdraw a version and offer the one before. winget never downgrades: machines that have it keep it."""
    _write(uid, "roll_back_version", {"reason": reason}, url, ca_file, retry_timeout, as_json=as_json)


def _action(operation: str, form: Mapping[str, str]) -> Callable[..., None]:
    """A command that needs only the version."""

    def run(
        uid: Uid, url: Url, retry_timeout: RetryTimeout = 600, ca_file: CaFile = None, as_json: AsJson = False
    ) -> None:
        _write(uid, operation, form, url, ca_file, retry_timeout, as_json=as_json)

    return run


for _name, (_operation, _form, _help) in ACTIONS.items():
    releases.command(_name, help=_help)(_action(_operation, _form))


def _write(
    uid: str,
    operation: str,
    form: Mapping[str, str],
    url: str,
    ca_file: Path | None,
    retry_timeout: float,
    *,
    as_json: bool,
) -> None:
    """Call an operation, and print the version's new state."""
    method = "PATCH" if operation == "pin_version" else "POST"
    answer = _call(url, ca_file, retry_timeout, method, operation, uid, form=form)
    if as_json:
        typer.echo(json_text(answer))
        return
    print_line(console, _state(answer["release"]))
    for ring, version in answer.get("offered", {}).items():
        print_line(console, f"{ring}: {version or 'no version'}")


def _call(
    url: str,
    ca_file: Path | None,
    retry_timeout: float,
    method: str,
    *segments: str,
    query: Mapping[str, str] | None = None,
    form: Mapping[str, str] | None = None,
) -> Any:
    """The answer of an operation. A problem ends the command: exit status GATE_WAITS for a gate, else 1."""

    async def work() -> Any:
        async with open_client(url, ca_file, retry_timeout) as client:
            return await client.call(method, *segments, query=query, form=form)

    with problems_printed(retry_timeout):
        try:
            return run_until_stopped(work(), error_console)
        except UpstreamProblem as refusal:
            if refusal.code != "gate_waiting":
                raise
            print_line(error_console, f"pkgrepo: {refusal.detail}")
            raise typer.Exit(GATE_WAITS) from None


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
