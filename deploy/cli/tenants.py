"""`pkgrepo tenant`: tenants and their settings."""

import asyncio
import re
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column
from typer import Option

from auth_service.tenants.service import to_audit_text
from common.tenants import Tenant, VersionKey, is_tenant_id, parse_network
from deploy.cli.access.entra import entra
from deploy.cli.access.oidc import oidc
from deploy.cli.options import Data, TenantId, error_console, run_recorded, run_with_operator
from deploy.operator.stores import StoreAddresses, store_addresses
from deploy.operator.tenants import Operator, OperatorAudit, delete_tenant, locked_out, open_operator_audit
from deploy.terminal import folding_table

tenants = typer.Typer(no_args_is_help=True)
tenants.add_typer(entra, name="entra", help="Set, show and remove the app of Entra ID for winget.")
tenants.add_typer(oidc, name="oidc", help="Set, show and remove the company login of a tenant (OpenID Connect).")
console = Console(highlight=False)

MAX_BYTES, MAX_CLIENTS = 2**63 - 1, 2**31 - 1  # MongoDB's int64, and a count above any fleet
LOOPBACK = "127.0.0.1"  # Callers beside `pkgrepo up` have this address.
Quota = Annotated[int | None, Option(min=0, max=MAX_BYTES, help="Limit of stored installers, in bytes.")]
Clients = Annotated[int | None, Option(min=0, max=MAX_CLIENTS, help="Limit of registered clients.")]
Networks = Annotated[str | None, Option(help="Addresses, networks and a-b ranges, comma-separated; empty allows all.")]
Authentication = Annotated[bool | None, Option(help="Require a token from clients.")]
Strictness = Annotated[bool | None, Option(help="Reject versions whose metadata contradicts the file.")]


@tenants.command()
def create(
    tenant_id: TenantId,
    storage_quota: Quota = None,
    max_clients: Clients = None,
    allowed_networks: Networks = None,
    client_authentication: Authentication = None,
    data: Data = None,
) -> None:
    """Create a tenant. Limits that are not given are unlimited."""
    tenant = Tenant(
        tenant_id,
        client_authentication=bool(client_authentication),
        allowed_networks=_networks(allowed_networks or ""),
        storage_quota=storage_quota,
        max_clients=max_clients,
    )

    async def work(operator: Operator, audit: OperatorAudit) -> None:
        await operator.tenants.create(tenant)
        settings = {name: to_audit_text(value) for name, value in vars(tenant).items()}
        await audit.add(tenant_id, "tenant_create", **settings)

    run_recorded(work, data)
    console.print(f"Tenant {tenant_id} was created. Add an administrator: `pkgrepo user create {tenant_id} NAME`")


@tenants.command("list")
def list_tenants(data: Data = None) -> None:
    """List the tenants and their settings."""
    limits = ("Storage quota", "Max. clients")
    networks = Column("Allowed networks", min_width=len("192.168.100.100-192.168.100.200"))
    table = folding_table("Tenant", "Client authentication", networks, *limits, "Version key", "Installers")
    for tenant in run_with_operator(lambda operator: operator.tenants.list(), data):
        table.add_row(
            tenant.tenant_id,
            "enforced" if tenant.client_authentication else "off",
            "\n".join(tenant.allowed_networks) or "all",
            "none" if tenant.storage_quota is None else f"{tenant.storage_quota:,} bytes",
            "none" if tenant.max_clients is None else f"{tenant.max_clients:,}",
            tenant.version_key,
            "strict" if tenant.strict_installers else "",
        )
    console.print(table)


@tenants.command()
def edit(
    tenant_id: TenantId,
    storage_quota: Annotated[str | None, Option(help="Bytes, or `none`.")] = None,
    max_clients: Annotated[str | None, Option(help="Number, or `none`.")] = None,
    allowed_networks: Networks = None,
    client_authentication: Authentication = None,
    version_key: Annotated[VersionKey | None, Option(help="What must be unique within a package.")] = None,
    strict_installers: Strictness = None,
    data: Data = None,
) -> None:
    """Change the settings of a tenant, with immediate effect."""
    changes: dict[str, object] = {}
    if storage_quota is not None:
        changes["storage_quota"] = _limit("--storage-quota", storage_quota, MAX_BYTES)
    if max_clients is not None:
        changes["max_clients"] = _limit("--max-clients", max_clients, MAX_CLIENTS)
    if allowed_networks is not None:
        changes["allowed_networks"] = _networks(allowed_networks)
    options = {
        "client_authentication": client_authentication,
        "version_key": version_key,
        "strict_installers": strict_installers,
    }
    changes |= {name: value for name, value in options.items() if value is not None}

    async def work(operator: Operator, audit: OperatorAudit) -> set[str]:
        await audit.add(tenant_id, "tenant_edit", await operator.tenants.edit(tenant_id, changes))
        return await audit.recent_addresses(tenant_id)

    callers = run_recorded(work, data) | ({LOOPBACK} if data else set())
    console.print(f"Tenant {tenant_id} was changed.")
    for caller in locked_out(_networks(allowed_networks or ""), callers):
        error_console.print(f"Warning: {caller} is not in these networks. Its requests get status 403 from now on.")


@tenants.command()
def delete(
    tenant_id: TenantId, yes: Annotated[bool, Option("--yes", help="Skip the confirmation.")] = False, data: Data = None
) -> None:
    """Delete a tenant with its users, packages, installers and clients."""
    if not yes and typer.prompt(f"This deletes all data of {tenant_id}. Type the id to confirm") != tenant_id:
        raise typer.Abort

    async def work(where: StoreAddresses) -> bool:
        if is_tenant_id(tenant_id):
            async with open_operator_audit(where) as audit:
                await audit.add_deletion(tenant_id)
        return await delete_tenant(where.addresses, where.installers, tenant_id)

    if not asyncio.run(work(store_addresses(data))):
        console.print(f"There was no tenant {tenant_id}; remains of an interrupted deletion were removed.")
        raise typer.Exit(1)
    console.print(f"Tenant {tenant_id} was deleted.")


def _networks(text: str) -> tuple[str, ...]:
    return tuple(parse_network("--allowed-networks", part.strip()) for part in text.split(",") if part.strip())


def _limit(option: str, text: str, maximum: int) -> int | None:
    if text.casefold() == "none":
        return None
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) > maximum:
        raise typer.BadParameter(f"must be a whole number up to {maximum}, or `none`", param_hint=option)
    return int(text)
