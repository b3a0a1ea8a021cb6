"""`pkgrepo keys`: rotation of the keys of sessions, download addresses, client tokens and requests between services."""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from client_registry.clients.store import MongoClientStore
from common.settings import BadSetting
from deploy.cli.options import console
from deploy.local.folder import Addresses, DataFolder
from deploy.operator.key_files import KeyFiles
from deploy.operator.schemas import open_database
from deploy.operator.stores import store_addresses
from deploy.operator.tenants import open_operator

app = typer.Typer(no_args_is_help=True)


@app.command()
def rotate(
    data: Annotated[Path | None, Option(help="Folder of `pkgrepo up`.")] = None,
    folder: Annotated[
        Path | None,
        Option(
            help="Folder with the key files, or with one subfolder of key files per service. Nothing else may be in it."
        ),
    ] = None,
    prepare: Annotated[bool, Option("--prepare", help="Only add new keys after the signing keys.")] = False,
    switch: Annotated[bool, Option("--switch", help="Make the prepared keys the signing keys.")] = False,
    finish: Annotated[bool, Option("--finish", help="Remove the old keys.")] = False,
) -> None:
    """Replace each signing key by a new one; with --finish, remove the old keys.

    Services need no restart: they read their key files every second, and accept signatures of both keys. When the old
    keys are removed, the sessions and download addresses that they signed become invalid. Where files take longer to
    reach the services, as in Kubernetes, use --prepare, --switch and --finish in turn, and distribute the files after
    each step.
    """
    path = DataFolder(data.absolute()).keys if data else folder
    if path is None or (data and folder):
        raise BadSetting("give either --data DIR or --folder DIR")
    if prepare + switch + finish > 1:
        raise BadSetting("give one of --prepare, --switch and --finish at a time")
    files = KeyFiles(path)
    if finish:
        _finish(files, data)
    elif prepare:
        _report(files.prepare(), "a new key is added after the signing key")
        console.print("Continue with --switch when every service has these files.")
    else:
        _report(files.switch() if switch else files.rotate(), "a new key signs; the old key is still accepted")
        console.print(
            "Remove the old keys with --finish after SESSION_LIFETIME and DOWNLOAD_LIFETIME, an hour by default: then "
            "everything that they signed has expired."
        )


def _report(files: Iterable[Path], change: str) -> None:
    for file in files:
        console.print(f"{file}: {change}")


def _finish(files: KeyFiles, data: Path | None) -> None:
    since = files.client_tokens_since()
    waiting = asyncio.run(_count_unseen(store_addresses(data).addresses, since)) if since else 0
    _report(files.finish(keep_client_tokens=waiting > 0), "the old key is removed")
    if waiting:
        console.print(
            f"The old key of client tokens stays: {waiting} clients have not called since the rotation, and would be "
            "rejected without it. Run this again later, or give those clients new tokens or delete them."
        )


async def _count_unseen(addresses: Addresses, since: datetime) -> int:
    """The number of clients of all tenants whose tokens are still stored under the old key."""
    async with open_operator(addresses) as operator, open_database(addresses.mongo_url, "clients") as database:
        store = MongoClientStore(database)
        return sum([await store.count_unseen(tenant.tenant_id, since) for tenant in await operator.tenants.list()])
