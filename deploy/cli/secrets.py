"""`pkgrepo keys`, the rotation of keys, and `pkgrepo cluster`, the one-time preparation in containers.

The compose file and the Kubernetes manifests run `pkgrepo cluster`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from client_registry.clients.store import MongoClientStore
from common.settings import BadSetting, load
from common.tenants import is_tenant_id
from deploy.cli.options import TenantId, console
from deploy.cluster.rights import OtherStores, prepare
from deploy.cluster.secrets import ClusterSecrets, prepare_backup_folder
from deploy.local.folder import Addresses, DataFolder
from deploy.operator.key_files import KeyFiles
from deploy.operator.stores import open_database, store_addresses
from deploy.operator.tenants import ADMINISTRATOR, create_first_tenant, open_operator
from deploy.terminal import print_line

keys = typer.Typer(no_args_is_help=True)
cluster = typer.Typer(no_args_is_help=True)
MAX_NAMES = 20  # clients in one line

Folder = Annotated[Path, Option(help="Folder of secrets.")]


@keys.command()
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
    new = files.client_token_key()
    waiting = asyncio.run(_clients_of_the_old_key(store_addresses(data).addresses, new.signing_id)) if new else []
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


@cluster.command()
def secrets(
    folder: Folder,
    mongo_url: Annotated[str | None, Option(help="Address of an external MongoDB.")] = None,
    redis_url: Annotated[str | None, Option(help="Address of an external Redis.")] = None,
    rabbitmq_url: Annotated[str | None, Option(help="Address of an external RabbitMQ.")] = None,
    external_stores: Annotated[
        bool,
        Option(
            "--external-stores", envvar="EXTERNAL_STORES", help="All stores are external; their addresses are in urls/."
        ),
    ] = False,
    grafana: Annotated[bool, Option("--grafana", help="Generate a password for Grafana too.")] = False,
    backups: Annotated[
        Path | None, Option(help="Folder of backups. An empty folder of root is given to the services' user.")
    ] = None,
) -> None:
    """Generate missing keys of the services and users of the stores. Re-running is safe.

    For external stores, write each service's address into its file in urls/ and add --external-stores. MONGO_URL_FILE,
    REDIS_URL_FILE and RABBITMQ_URL_FILE, each the name of a file, give all services the same address and user.
    """
    urls = {"mongo_url": mongo_url, "redis_url": redis_url, "rabbitmq_url": rabbitmq_url}
    others = load(OtherStores, **{name: url for name, url in urls.items() if url is not None})
    written = ClusterSecrets(folder, others, grafana=grafana, external=external_stores).generate()
    if backups:
        prepare_backup_folder(backups)
    console.print(f"{folder}: {len(written)} new secrets")


@cluster.command()
def passwords(
    folder: Folder, finish: Annotated[bool, Option("--finish", help="Remove the old passwords.")] = False
) -> None:
    """Give each service and the operator a new password at the stores of the compose file.

    The old passwords remain valid until --finish. The stores must read the files again: see the guide.
    """
    cluster_secrets = ClusterSecrets(folder)
    if finish:
        cluster_secrets.drop_old_passwords()
    else:
        cluster_secrets.renew_passwords()
    console.print(f"{folder}: " + ("the old passwords are removed" if finish else "each user has a new password"))


@cluster.command()
def mongodb(
    folder: Folder,
    member: Annotated[str, Option(help="Address of the server for the services, host:port.")],
    address: Annotated[str, Option(help="Address of the server on its own host.")] = "127.0.0.1:27017",
) -> None:
    """Create MongoDB's replica set of one member, and create or update its users."""
    cluster_secrets = ClusterSecrets(folder)
    credentials = cluster_secrets.credentials("mongodb")
    asyncio.run(prepare(address, member, cluster_secrets.root_passwords(), credentials))
    console.print(f"{member} is a replica set of one with {len(credentials)} users")


@cluster.command("first-tenant")
def first_tenant(
    tenant_id: TenantId,
    password_file: Annotated[
        Path, Option(help="File with the administrator's password; generated if it does not exist.")
    ],
) -> None:
    """Create the first tenant and its administrator if they do not exist."""
    if not is_tenant_id(tenant_id):
        raise typer.BadParameter("must be 1 to 63 of a-z, 0-9, _ and -, and not a reserved word")
    password = asyncio.run(create_first_tenant(store_addresses(None), tenant_id, password_file))
    if password is None:
        console.print(f"Tenant {tenant_id} exists already.")
    else:
        console.print(f"Tenant {tenant_id} has the administrator {ADMINISTRATOR}; the password is in {password_file}.")
