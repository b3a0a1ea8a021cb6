"""The entry point of `pkgrepo`. The module of a command is imported when the command runs, for a quick start."""

import asyncio
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from typer import Option
from typer.core import TyperGroup
from typer.main import get_group


class Lazy(NamedTuple):
    """A command or group of commands: its module in this folder, its name there, and its help in one sentence."""

    module: str
    name: str
    help: str


COMMANDS: Mapping[str, Lazy] = {
    "up": Lazy("up", "up", "Run MongoDB, Redis and all five services on this machine until Ctrl-C."),
    "publish": Lazy(
        "publish", "publish", "Publish installers as versions of a package; prints the UID of each version."
    ),
    "release": Lazy("publish", "releases", "List, approve, promote and stop versions on their way through the rings."),
    "client": Lazy("clients", "clients", "Register the clients of a CSV file; prints their tokens."),
    "import": Lazy(
        "winget", "import_paths", "Publish the installers of winget manifests, or import a tenant from its archive."
    ),
    "manifests": Lazy(
        "winget",
        "manifests",
        "Export the catalog as winget manifests, one folder for each version; prints the folders.",
    ),
    "tenant": Lazy("tenants", "tenants", "Create, list, edit and delete tenants."),
    "user": Lazy("access", "users", "Create, list, edit and delete the users of a tenant."),
    "token": Lazy("access", "tokens", "Create, list, rotate and delete the API tokens of a tenant."),
    "audit": Lazy("maintenance", "logs", "Verify and export the audit log."),
    "backup": Lazy("backup", "backup", "Back up databases and installers, without keys, while the services run."),
    "restore": Lazy(
        "backup", "restore", "Restore a backup. Databases and storage must be empty and all services stopped."
    ),
    "package": Lazy("backup", "packages", "Restore a deleted package from a backup."),
    "export": Lazy(
        "backup",
        "export_tenant",
        "Export one tenant into an archive: settings, users, packages, installers, clients, audit log.",
    ),
    "scrub": Lazy(
        "maintenance",
        "scrub",
        "Verify all stored installers and list the damaged ones. Services do not serve them until they are repaired.",
    ),
    "scan": Lazy(
        "maintenance",
        "scan",
        "Scan all stored installers for malware again. A verdict counts until there is a new one.",
    ),
    "quota": Lazy(
        "maintenance",
        "quota",
        "Compare each tenant's recorded storage with its files; exit status 1 if a difference remains.",
    ),
    "storage": Lazy("migrate", "storage", "Move installers between storages."),
    "migrate": Lazy(
        "migrate",
        "migrate",
        "Migrate the databases while services of the previous release run. New services also do this when they start.",
    ),
    "keys": Lazy("secrets", "keys", "Rotate the signing keys."),
    "cluster": Lazy("secrets", "cluster", "Prepare a deployment in containers."),
}
# The errors that end a command with one line. A class whose module is not imported was not raised.
FAILURES: Mapping[str, str] = {
    "common.settings": "BadSetting",
    "common.mongo.schema": "SchemaError",
    "deploy.backup.records": "BackupProblem",
    "deploy.local.folder": "FolderProblem",
    "deploy.local.servers": "ServerUnavailable",
    "deploy.operator.tenants": "NotRecorded",
}
STORE_FAILURES: Mapping[str, str] = {"common.mongo": "MongoError", "common.redis": "RedisError"}


class LazyGroup(TyperGroup):
    """Knows the names and the help of all commands, and imports the one that runs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, _load(name) if name and name in COMMANDS else command, rest


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False)


def _show_version(requested: bool) -> None:
    if requested:
        from common.telemetry import software_version

        typer.echo(f"pkgrepo {software_version()}")
        raise typer.Exit


@app.callback()
def pkgrepo(
    version: Annotated[
        bool, Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """A private package repository for Windows fleets."""


@app.command()
def status(
    data: Annotated[
        Path | None,
        Option(
            help="Folder of a running `pkgrepo up`. Default: the addresses in the environment, such as GATEWAY_URL, "
            "or the folder `data` if `pkgrepo up` runs on it."
        ),
    ] = None,
) -> None:
    """Show the status of all services; exit status 1 if one is not ready."""
    from deploy.operator.status import print_status

    if not asyncio.run(print_status(Console(highlight=False, soft_wrap=True), data)):
        raise typer.Exit(1)


def _placeholder() -> None:
    """Stand for a command that is not imported yet."""


for _name, _command in COMMANDS.items():
    app.command(_name, help=_command.help)(_placeholder)


def _load(name: str) -> Any:
    """Import a command."""
    module, attribute, text = COMMANDS[name]
    command = getattr(import_module(f"deploy.cli.{module}"), attribute)
    group = typer.Typer(pretty_exceptions_enable=False)
    if isinstance(command, typer.Typer):
        group.add_typer(command, name=name, help=text)
    else:
        group.callback()(_placeholder)
        group.command(name)(command)
    return get_group(group).commands[name]


def main() -> None:
    """Run the command; an expected failure is one line."""
    if any(argument in COMMANDS for argument in sys.argv[1:2]):
        from common.telemetry import configure_logs

        configure_logs("error")
    try:
        app()
    except Exception as error:
        reason = _reason(error)
        if reason is None:
            raise
        sys.exit(f"pkgrepo: {reason}")


def _reason(error: Exception) -> str | None:
    """The text of an expected failure, otherwise None."""
    from common.errors import Problem
    from deploy.terminal import visible

    if isinstance(error, Problem):
        return visible(error.detail)
    if isinstance(error, _loaded(FAILURES)):
        return visible(error)
    if isinstance(error, _loaded(STORE_FAILURES)):
        from deploy.operator.stores import describe

        return describe(error)
    if isinstance(error, OSError):
        where = f"{visible(error.filename)}: " if error.filename else ""
        return f"{where}{error.strerror or visible(error)}"
    return None


def _loaded(classes: Mapping[str, str]) -> tuple[type[Exception], ...]:
    return tuple(getattr(sys.modules[module], name) for module, name in classes.items() if module in sys.modules)


if __name__ == "__main__":
    main()
