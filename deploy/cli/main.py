"""`pkgrepo`, the operator's command."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from common.auth.callers import Deployment
from common.errors import Problem
from common.http.server import until_stopped
from common.mongo import MongoError
from common.mongo.schema import SchemaError
from common.redis import RedisError
from common.settings import BadSetting
from common.telemetry import configure_logs
from deploy.backup.manifest import BackupProblem
from deploy.cli import audit, cluster, keys, maintenance, storage, tenants, users, winget_export, winget_import
from deploy.cli import backup as cli_backup
from deploy.cli import migrate as cli_migrate
from deploy.cli import publish as cli_publish
from deploy.local.demo import publish_samples
from deploy.local.first_start import ADMINISTRATOR
from deploy.local.folder import DataFolder, FolderProblem
from deploy.local.logs import open_log
from deploy.local.servers import ServerUnavailable
from deploy.local.up import Running, running
from deploy.operator.audit import NotRecorded
from deploy.operator.status import print_status
from deploy.publish.terminal import visible

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(tenants.app, name="tenant", help="Create, list, edit and delete tenants.")
app.add_typer(users.app, name="user", help="Create, list and delete a tenant's users.")
app.add_typer(audit.app, name="audit", help="Verify and export the audit log.")
app.add_typer(keys.app, name="keys", help="Replace the keys that sign.")
app.add_typer(cluster.app, name="cluster", help="Prepare a deployment in containers.")
app.command()(cli_publish.publish)
app.command()(maintenance.scrub)
app.command()(maintenance.quota)
app.command()(cli_migrate.migrate)
app.command()(cli_backup.backup)
app.command()(cli_backup.restore)
app.command("export")(cli_backup.export_tenant)
app.command("import")(winget_import.import_paths)
app.command()(winget_export.manifests)
app.add_typer(storage.app, name="storage", help="Say where installers are kept.")
console = Console(highlight=False, soft_wrap=True)

DEFAULT_FOLDER = Path("data")


@app.callback()
def pkgrepo() -> None:
    """A private package repository that Windows fleets install from."""


@app.command()
def up(
    data: Annotated[Path, typer.Option(help="The folder that holds everything.")] = DEFAULT_FOLDER,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8080,
    deployment: Annotated[Deployment, typer.Option(help="Paths begin with a tenant, or with client/api.")] = (
        Deployment.MULTI
    ),
    demo: Annotated[bool, typer.Option(help="Publish a few sample packages.")] = False,
) -> None:
    """Run the whole service on this machine: MongoDB, Redis and all five services, until Ctrl-C."""
    folder = DataFolder(data.absolute())
    asyncio.run(until_stopped(_up(folder, host, port, deployment, demo=demo)))
    console.print("Stopped; everything is kept.")


@app.command()
def status(
    data: Annotated[Path | None, typer.Option(help="The folder of a running `pkgrepo up`.")] = None,
) -> None:
    """Say which services are ready, and what the others lack."""
    if not asyncio.run(print_status(console, DataFolder(data.absolute()) if data else None)):
        raise typer.Exit(1)


def main() -> None:
    """The command, with every expected failure told in one line."""
    configure_logs("error")
    try:
        app()
    except Problem as problem:
        sys.exit(f"pkgrepo: {visible(problem.detail)}")
    except (BackupProblem, BadSetting, FolderProblem, NotRecorded, SchemaError, ServerUnavailable) as problem:
        sys.exit(f"pkgrepo: {visible(problem)}")
    except (MongoError, RedisError) as error:
        sys.exit(f"pkgrepo: a store does not answer ({type(error).__name__}); check MONGO_URL and REDIS_URL")
    except OSError as error:
        where = f"{visible(error.filename)}: " if error.filename else ""
        sys.exit(f"pkgrepo: {where}{error.strerror or visible(error)}")


async def _up(folder: DataFolder, host: str, port: int, deployment: Deployment, *, demo: bool) -> None:
    console.print(f"Starting on {folder.path} …")
    folder.prepare()
    with open_log(folder.logs) as logs:
        configure_logs("info", logs)
        async with running(folder, host, port, deployment) as service:
            if demo:
                console.print(await publish_samples(service, folder))
            _introduce(service, folder)
            try:
                await asyncio.Event().wait()
            finally:
                console.print("Stopping …")


def _introduce(service: Running, folder: DataFolder) -> None:
    base, password = service.base_url, folder.password
    console.print(f"\n[bold]{base}[/bold] answers. Logs: {folder.logs}")
    if service.password:
        console.print(f"Administrator [bold]{ADMINISTRATOR}[/bold], password [bold]{service.password}[/bold]")
        console.print(f"The password is shown this once, and kept in {password}")
    console.print(
        f"\nIn a browser: {base}/dashboard\n\nFrom a terminal:\n\n"
        f"TOKEN=$(curl -s {base}/login -d username={ADMINISTRATOR} --data-urlencode password@{password}"
        """ | sed -E 's/.*"message":"([^"]+)".*/\\1/')\n"""
        f'curl -X POST -H "Authorization: Bearer $TOKEN" {base}/get_packages\n'
        f'curl -H "Authorization: Bearer $TOKEN" {base}/server_information\n\n'
        "Ctrl-C stops everything.",
        markup=False,
    )


if __name__ == "__main__":
    main()
