"""`pkgrepo client import` registers the clients of a CSV file, for use in a pipeline."""

from pathlib import Path
from typing import Annotated

import typer
from aiohttp import FormData
from typer import Argument, Option

from deploy.cli.options import AsJson
from deploy.cli.publish import with_client
from deploy.publish.client import RetryingClient
from deploy.terminal import json_text

COLUMNS = ("client_name", "client_id", "auth_token", "source_url")

clients = typer.Typer(no_args_is_help=True)


@clients.command("import")
@with_client
async def import_clients(
    client: RetryingClient,
    file: Annotated[Path, Argument(exists=True, dir_okay=False, help="CSV file; its first line names the columns.")],
    skip_existing: Annotated[
        bool, Option("--skip-existing", help="Leave out clients that exist. Without it they refuse the file.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Register the clients of a CSV file, all or none; prints their tokens as CSV. Signs in like `pkgrepo publish`.

    Columns: client_name, and if needed ring and enabled.
    """
    form = {"clients": file.read_text(encoding="utf-8-sig", errors="replace"), "skip_existing": str(int(skip_existing))}
    answer = await client.request("POST", "import_clients", body=lambda _: FormData(form))
    rows = [COLUMNS, *([row[column] for column in COLUMNS] for row in answer["clients"])]
    typer.echo(json_text(answer) if as_json else "\n".join(map(",".join, rows)))
