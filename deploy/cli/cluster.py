"""`pkgrepo cluster`: one-time preparation in containers. The compose file and the Kubernetes manifests run it."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from common.settings import load
from common.tenants import is_tenant_id
from deploy.cli.options import TenantId, console, run_recorded
from deploy.cluster.rights import OtherStores, prepare
from deploy.cluster.secrets import ClusterSecrets, prepare_backup_folder
from deploy.operator.tenants import ADMINISTRATOR, create_first_tenant

app = typer.Typer(no_args_is_help=True)

Folder = Annotated[Path, Option(help="Folder of secrets.")]


@app.command()
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


@app.command()
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


@app.command()
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


@app.command("first-tenant")
def first_tenant(
    tenant_id: TenantId,
    password_file: Annotated[
        Path, Option(help="File with the administrator's password; generated if it does not exist.")
    ],
) -> None:
    """Create the first tenant and its administrator if they do not exist."""
    if not is_tenant_id(tenant_id):
        raise typer.BadParameter("must be 1 to 63 of a-z, 0-9, _ and -, and not a reserved word")
    password = run_recorded(
        lambda operator, audit: create_first_tenant(operator, audit, tenant_id, password_file), None
    )
    if password is None:
        console.print(f"Tenant {tenant_id} exists already.")
    else:
        console.print(f"Tenant {tenant_id} has the administrator {ADMINISTRATOR}; the password is in {password_file}.")
