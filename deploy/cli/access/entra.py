"""`pkgrepo tenant entra`: the app of Entra ID with which winget signs in the users of a tenant."""

from typing import Annotated

import typer
from rich.console import Console
from typer import Option

from common.auth.entra_app import EntraApp
from deploy.cli.options import Data, TenantId, run_recorded, run_with_operator
from deploy.operator.tenants import Operator, OperatorAudit

entra = typer.Typer(no_args_is_help=True)
console = Console(highlight=False, soft_wrap=True)

Directories = Annotated[
    list[str], Option("--directory", metavar="GUID", help="Directory (tenant) id at Entra ID; repeat it for several.")
]
ClientId = Annotated[str, Option(metavar="GUID", help="Application (client) id of the app.")]
Resource = Annotated[str, Option(metavar="URI", help="Application ID URI of the app, such as api://…")]
Scope = Annotated[str, Option("--scope", metavar="NAME", help="Scope that the app exposes, without its URI.")]
Rings = Annotated[
    list[str] | None, Option("--map", metavar="VALUE=RING", help="App role or group id, and its ring; may be repeated.")
]


@entra.command("set")
def set_app(
    tenant_id: TenantId,
    directory: Directories,
    client_id: ClientId,
    resource: Resource,
    scope: Scope,
    map_: Rings = None,
    data: Data = None,
) -> None:
    """Set or replace the app. winget then signs users in, and clients older than contract 1.7 cannot use the source."""
    pairs = [(value, ring) for value, _, ring in (text.rpartition("=") for text in map_ or ())]
    _change(tenant_id, EntraApp.parse(directory, client_id, resource, scope, pairs), data)
    console.print(f"winget signs in users of {tenant_id} with Entra ID.")


@entra.command()
def show(tenant_id: TenantId, data: Data = None) -> None:
    """Show the app."""
    app = run_with_operator(lambda operator: operator.tenants.find(tenant_id), data).entra
    if app is None:
        console.print(f"Tenant {tenant_id} has no app of Entra ID.")
        raise typer.Exit(1)
    for directory in app.directories:
        console.print(f"Directory: {directory}")
    console.print(f"Client id: {app.client_id}\nResource:  {app.resource}\nScope:     {app.scope}", markup=False)
    for value, ring in app.rings:
        console.print(f"Map:       {value}={ring}", markup=False)


@entra.command()
def remove(tenant_id: TenantId, data: Data = None) -> None:
    """Remove the app. Its tokens are refused from now on."""
    _change(tenant_id, None, data)
    console.print(f"winget no longer signs in users of {tenant_id} with Entra ID.")


def _change(tenant_id: str, app: EntraApp | None, data: Data) -> None:
    async def work(operator: Operator, audit: OperatorAudit) -> None:
        await audit.add(tenant_id, "tenant_edit", await operator.tenants.edit(tenant_id, {"entra": app}))

    run_recorded(work, data)
