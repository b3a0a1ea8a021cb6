"""The entry point of `pkgrepo`, and the commands `up` and `status`."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer import Option

from common.auth.internal_tokens import Deployment
from common.errors import Problem
from common.http.server import until_stopped
from common.mongo import MongoError
from common.mongo.schema import SchemaError
from common.redis import RedisError
from common.settings import BadSetting
from common.telemetry import configure_logs
from deploy.backup.manifest import BackupProblem
from deploy.cli import audit, cluster, keys, maintenance, tenants, winget
from deploy.cli import backup as cli_backup
from deploy.cli import migrate as cli_migrate
from deploy.cli import publish as cli_publish
from deploy.local.demo import publish_samples
from deploy.local.first_tenant import ADMINISTRATOR
from deploy.local.folder import DataFolder, FolderProblem
from deploy.local.logs import open_log
from deploy.local.servers import ServerUnavailable
from deploy.local.up import RunningService, run_all
from deploy.operator.audit import NotRecorded
from deploy.operator.status import print_status
from deploy.terminal import visible

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(tenants.tenants, name="tenant", help="Create, list, edit and delete tenants.")
app.add_typer(tenants.users, name="user", help="Create, list and delete the users of a tenant.")
app.add_typer(audit.app, name="audit", help="Verify and export the audit log.")
app.add_typer(keys.app, name="keys", help="Rotate the signing keys.")
app.add_typer(cluster.app, name="cluster", help="Prepare a deployment in containers.")
app.command()(cli_publish.publish)
app.command()(maintenance.scrub)
app.command()(maintenance.quota)
app.command()(cli_migrate.migrate)
app.command()(cli_backup.backup)
app.command()(cli_backup.restore)
app.command("export")(cli_backup.export_tenant)
app.command("import")(winget.import_paths)
app.command()(winget.manifests)
app.add_typer(cli_migrate.storage, name="storage", help="Move installers between storages.")
console = Console(highlight=False, soft_wrap=True)


@app.callback()
def pkgrepo() -> None:
    """A private package repository for Windows fleets."""


@app.command()
def up(
    data: Annotated[Path, Option(help="Folder of all data.")] = Path("data"),
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0 chooses a free port.")] = 8080,
    deployment: Annotated[
        Deployment, Option(help="Paths begin with a tenant id (multi) or with client/api (single).")
    ] = Deployment.MULTI,
    demo: Annotated[bool, Option(help="Publish a few sample packages.")] = False,
) -> None:
    """Run MongoDB, Redis and all five services on this machine until Ctrl-C."""
    folder = DataFolder(data.absolute())
    asyncio.run(until_stopped(_up(folder, host, port, deployment, demo=demo)))
    console.print("Stopped. All data is kept.")


@app.command()
def status(
    data: Annotated[
        Path | None,
        Option(
            help="Folder of a running `pkgrepo up`. Default: the addresses in the environment, such as GATEWAY_URL."
        ),
    ] = None,
) -> None:
    """Show the status of all services; exit status 1 if one is not ready."""
    if not asyncio.run(print_status(console, DataFolder(data.absolute()) if data else None)):
        raise typer.Exit(1)


def main() -> None:
    """Run the command; an expected failure is one line."""
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
        async with run_all(folder, host, port, deployment) as service:
            if demo:
                console.print(await publish_samples(service.base_url, folder.password.read_text(encoding="utf-8")))
            _print_welcome(service, folder)
            try:
                await asyncio.Event().wait()
            finally:
                console.print("Stopping …")


def _print_welcome(service: RunningService, folder: DataFolder) -> None:
    base, password = service.base_url, folder.password
    console.print(f"\n[bold]{base}[/bold] is ready. Logs: {folder.logs}")
    if service.password:
        console.print(f"Administrator [bold]{ADMINISTRATOR}[/bold], password [bold]{service.password}[/bold]")
        console.print(f"The password is shown once. It is stored in {password}")
    console.print(
        f"\nIn a browser: {base}/dashboard\n\nFrom a terminal:\n\n"
        f"TOKEN=$(curl -s {base}/login -d username={ADMINISTRATOR} --data-urlencode password@{password}"
        """ | sed -E 's/.*"message":"([^"]+)".*/\\1/')\n"""
        f'curl -X POST -H "Authorization: Bearer $TOKEN" {base}/get_packages\n'
        f'curl -H "Authorization: Bearer $TOKEN" {base}/server_information\n\n'
        "Press Ctrl-C to stop.",
        markup=False,
    )


if __name__ == "__main__":
    main()
