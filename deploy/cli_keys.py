"""`pkgrepo keys`: another key in place of the one there is, while everything runs."""

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from client_registry.store import MongoClientStore
from common.mongo import open_database
from common.settings import BadSetting
from deploy.folder import Addresses, DataFolder
from deploy.key_files import KeyFiles
from deploy.operations import open_operator
from deploy.places import places

app = typer.Typer(no_args_is_help=True)
console = Console(highlight=False, soft_wrap=True)


@app.callback()
def keys() -> None:
    """The keys that sign sessions, download addresses, client tokens, and what services tell each other."""


@app.command()
def rotate(
    data: Annotated[Path | None, typer.Option(help="The folder of `pkgrepo up`.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="A folder of key files that all services read, with nothing else in it.")
    ] = None,
    finish: Annotated[bool, typer.Option("--finish", help="Drop the keys of before.")] = False,
) -> None:
    """Put a new key before each key there is; with --finish, drop the keys of before.

    Nothing need be restarted: services look at their key files every second, and accept what either key signed. What
    the keys of before signed is void once they are dropped: sign-ins and download addresses.
    """
    given = DataFolder(data.absolute()).keys if data else folder
    if given is None or (data and folder):
        raise BadSetting("give either --data DIR or --folder DIR")
    files = KeyFiles(given)
    if not finish:
        for file in files.rotate():
            console.print(f"{file}: a new key signs; what the key of before signed is still accepted")
        console.print(
            "Drop the keys of before with --finish when what they signed is past its time: after SESSION_LIFETIME and "
            "DOWNLOAD_LIFETIME, an hour where they are not set."
        )
        return
    since = files.client_tokens_since()
    waiting = asyncio.run(_unseen(places(data).addresses, since)) if since else 0
    for file in files.finish(keep_client_tokens=waiting > 0):
        console.print(f"{file}: the key of before is dropped")
    if waiting:
        console.print(
            f"The client tokens keep their key of before: {waiting} clients have not called since, and would not be "
            "known any more. Run this again later, or give those clients new tokens or delete them."
        )


async def _unseen(addresses: Addresses, since: datetime) -> int:
    """How many clients of all tenants are still kept under the key of before."""
    async with open_operator(addresses) as operator, open_database(addresses.mongo_url, "clients") as database:
        store = MongoClientStore(database)
        return sum([await store.count_unseen(tenant.tenant_id, since) for tenant in await operator.tenants.list()])
