"""The entry point of `pkgrepo`, and the command `status`."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer import Option

from common.errors import Problem
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
from deploy.cli import up as cli_up
from deploy.local.folder import DataFolder, FolderProblem
from deploy.local.servers import ServerUnavailable
from deploy.operator.audit import NotRecorded
from deploy.operator.status import print_status
from deploy.terminal import visible

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(tenants.tenants, name="tenant", help="Create, list, edit and delete tenants.")
app.add_typer(tenants.users, name="user", help="Create, list and delete the users of a tenant.")
app.add_typer(audit.app, name="audit", help="Verify and export the audit log.")
app.add_typer(keys.app, name="keys", help="Rotate the signing keys.")
app.add_typer(cluster.app, name="cluster", help="Prepare a deployment in containers.")
app.command()(cli_up.up)
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


if __name__ == "__main__":
    main()
