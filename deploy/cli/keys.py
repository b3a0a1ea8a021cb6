"""`pkgrepo keys`: rotation of the keys of sessions, download addresses, client tokens and requests between services."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from client_registry.clients.store import MongoClientStore
from common.settings import BadSetting
from deploy.cli.options import console
from deploy.local.folder import Addresses, DataFolder
from deploy.operator.key_files import KeyFiles
from deploy.operator.stores import open_database, store_addresses
from deploy.operator.tenants import open_operator
from deploy.terminal import print_line

app = typer.Typer(no_args_is_help=True)
MAX_NAMES = 20  # clients in one line


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
    keys = files.client_token_key()
    waiting = asyncio.run(_clients_of_the_old_key(store_addresses(data).addresses, keys.signing_id)) if keys else []
    _report(files.finish(keep_client_tokens=bool(waiting)), "the old key is removed")
    if waiting:
        more = f" and {len(waiting) - MAX_NAMES} more" if len(waiting) > MAX_NAMES else ""
        print_line(
            console,
            "The old key of client tokens stays. The tokens of these clients are stored under it: "
            f"{', '.join(waiting[:MAX_NAMES])}{more}. Each moves to the new key at the client's next call. "
            "Run this again then. If a client does not call any more, give it a new token or delete it.",
        )


async def _clients_of_the_old_key(addresses: Addresses, key_id: str) -> Sequence[str]:
    """The clients of all tenants, `<tenant>/<name>`, whose tokens are not stored under the new key."""
    async with open_operator(addresses) as operator, open_database(addresses.mongo_url, "clients") as database:
        store, tenants = MongoClientStore(database), await operator.tenants.list()
        return [
            f"{tenant.tenant_id}/{name}"
            for tenant in tenants
            for name in await store.names_under_other_keys(tenant.tenant_id, key_id)
        ]
