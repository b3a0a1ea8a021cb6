"""`pkgrepo cluster …`: what a deployment in containers needs once, each safe to be run again."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from common.settings import load
from common.tenants import is_tenant_id
from deploy.cluster.backups import give_backup_folder
from deploy.cluster.mongodb import prepare
from deploy.cluster.secrets import ClusterSecrets
from deploy.cluster.stores import OtherStores
from deploy.local.first_start import ADMINISTRATOR, make_first_tenant
from deploy.operator.audit import open_record
from deploy.operator.operations import open_operator
from deploy.operator.stores import places

app = typer.Typer(no_args_is_help=True)
console = Console(highlight=False, soft_wrap=True)

Folder = Annotated[Path, typer.Option(help="The folder of secrets.")]


@app.callback()
def cluster() -> None:
    """What the compose file and the Kubernetes manifests beside this program run by themselves."""


@app.command()
def secrets(
    folder: Folder,
    mongo_url: Annotated[str | None, typer.Option(help="MongoDB, where somebody else runs it.")] = None,
    redis_url: Annotated[str | None, typer.Option(help="Redis, likewise.")] = None,
    rabbitmq_url: Annotated[str | None, typer.Option(help="RabbitMQ, likewise.")] = None,
    external_stores: Annotated[
        bool, typer.Option("--external-stores", help="The addresses of all stores are in urls/ already.")
    ] = False,
    grafana: Annotated[bool, typer.Option("--grafana", help="A password for the dashboard too.")] = False,
    backups: Annotated[
        Path | None, typer.Option(help="The folder of backups. If it is empty and root's, the services' user gets it.")
    ] = None,
) -> None:
    """Generate the keys of the services and the users of the stores that are missing. Re-running is safe.

    A folder of an earlier release gets a user for each service at each store. Where somebody else runs the stores, put
    each service's address into its file below urls/ and give --external-stores. MONGO_URL_FILE, REDIS_URL_FILE and
    RABBITMQ_URL_FILE, each the name of a file, give all services one address and so one user.
    """
    told = {"mongo_url": mongo_url, "redis_url": redis_url, "rabbitmq_url": rabbitmq_url}
    others = load(OtherStores, **{name: url for name, url in told.items() if url is not None})
    written = ClusterSecrets(folder, others, grafana=grafana, external=external_stores).make()
    if backups:
        give_backup_folder(backups)
    console.print(f"{folder}: {len(written)} new secrets")


@app.command()
def passwords(
    folder: Folder,
    finish: Annotated[bool, typer.Option("--finish", help="Drop the old passwords.")] = False,
) -> None:
    """Give each service and the operator a new password at the stores of the compose file.

    The old passwords remain valid until --finish. The stores read the files when they are told to: see the guide.
    """
    cluster_secrets = ClusterSecrets(folder)
    if finish:
        cluster_secrets.drop_old_passwords()
    else:
        cluster_secrets.renew_passwords()
    console.print(f"{folder}: " + ("the old passwords are dropped" if finish else "each user has a new password"))


@app.command()
def mongodb(
    folder: Folder,
    member: Annotated[str, typer.Option(help="The host:port under which the services find the server.")],
    address: Annotated[str, typer.Option(help="The server, on its own host.")] = "127.0.0.1:27017",
) -> None:
    """Form MongoDB's replica set of one and bring its users up to date."""
    cluster_secrets = ClusterSecrets(folder)
    passwords = cluster_secrets.root_passwords()
    credentials = cluster_secrets.credentials("mongodb")
    asyncio.run(prepare(address, member, passwords, credentials))
    console.print(f"{member} is a replica set of one with {len(credentials)} users")


@app.command("first-tenant")
def first_tenant(
    tenant_id: Annotated[str, typer.Argument(help="The tenant's id.")],
    password_file: Annotated[
        Path, typer.Option(help="The administrator's password; generated where there is none yet.")
    ],
) -> None:
    """Make the first tenant and its administrator, where they are not there."""
    if not is_tenant_id(tenant_id):
        raise typer.BadParameter("must be 1 to 63 of a-z, 0-9, _ and -, and not a reserved word")
    made = asyncio.run(_first_tenant(tenant_id, password_file))
    console.print(
        f"Tenant {tenant_id} has the administrator {ADMINISTRATOR}, whose password is in {password_file}."
        if made
        else f"Tenant {tenant_id} is there."
    )


async def _first_tenant(tenant_id: str, password_file: Path) -> bool:
    where = places(None)
    async with open_operator(where.addresses) as operator, open_record(where) as record:
        return await make_first_tenant(operator, record, tenant_id, password_file) is not None
