"""`pkgrepo keys`: another key in place of the one there is, while everything runs."""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from client_registry.clients.store import MongoClientStore
from common.settings import BadSetting
from deploy.local.folder import Addresses, DataFolder
from deploy.operator.key_files import KeyFiles
from deploy.operator.operations import open_operator
from deploy.operator.schemas import open_database
from deploy.operator.stores import places

app = typer.Typer(no_args_is_help=True)
console = Console(highlight=False, soft_wrap=True)


@app.callback()
def keys() -> None:
    """The keys that sign sessions, download addresses, client tokens, and what services tell each other."""


@app.command()
def rotate(
    data: Annotated[Path | None, typer.Option(help="The folder of `pkgrepo up`.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="A folder of key files, or of a folder of them for each service, with nothing else in it."),
    ] = None,
    prepare: Annotated[bool, typer.Option("--prepare", help="Only put new keys behind those there are.")] = False,
    switch: Annotated[bool, typer.Option("--switch", help="Let the keys sign that were put behind others.")] = False,
    finish: Annotated[bool, typer.Option("--finish", help="Drop the keys of before.")] = False,
) -> None:
    """Put a new key before each key there is; with --finish, drop the keys of before.

    Nothing need be restarted: services look at their key files every second, and accept what either key signed. What
    the keys of before signed is void once they are dropped: sign-ins and download addresses. Where files take longer to
    reach the services, as in Kubernetes, run it with --prepare, --switch and --finish in turn, and hand the files out
    after each.
    """
    given = DataFolder(data.absolute()).keys if data else folder
    if given is None or (data and folder):
        raise BadSetting("give either --data DIR or --folder DIR")
    if prepare + switch + finish > 1:
        raise BadSetting("give one of --prepare, --switch and --finish at a time")
    files = KeyFiles(given)
    if finish:
        _finish(files, data)
    elif prepare:
        _say(files.prepare(), "a new key is behind the one that signs")
        console.print("Go on with --switch when every service has these files.")
    else:
        _say(files.switch() if switch else files.rotate(), "a new key signs; what the key of before signed is accepted")
        console.print(
            "Drop the keys of before with --finish when what they signed is past its time: after SESSION_LIFETIME and "
            "DOWNLOAD_LIFETIME, an hour where they are not set."
        )


def _say(files: Iterable[Path], what: str) -> None:
    for file in files:
        console.print(f"{file}: {what}")


def _finish(files: KeyFiles, data: Path | None) -> None:
    since = files.client_tokens_since()
    waiting = asyncio.run(_unseen(places(data).addresses, since)) if since else 0
    _say(files.finish(keep_client_tokens=waiting > 0), "the key of before is dropped")
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
