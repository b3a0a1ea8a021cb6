"""`pkgrepo tenant …`: what an operator decides about tenants."""

import asyncio
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from auth_service.tenants.service import to_audit_text
from common.tenants import Tenant, VersionKey, is_tenant_id, parse_network
from deploy.operator.audit import open_record
from deploy.operator.operations import delete_tenant, open_operator
from deploy.operator.stores import StoreAddresses, places

app = typer.Typer(no_args_is_help=True)
console = Console(highlight=False)

TenantId = Annotated[str, typer.Argument(help="The tenant's id, the first part of its addresses.")]
Data = Annotated[Path | None, typer.Option(help="The folder of a running `pkgrepo up`; else MONGO_URL and REDIS_URL.")]
MOST_BYTES, MOST_CLIENTS = 2**63 - 1, 2**31 - 1  # what the database's numbers hold, and more than anyone has

Quota = Annotated[int | None, typer.Option(min=0, max=MOST_BYTES, help="Bytes of installers the tenant may keep.")]
Clients = Annotated[int | None, typer.Option(min=0, max=MOST_CLIENTS, help="Clients the tenant may register.")]
Networks = Annotated[str | None, typer.Option(help="Addresses, networks and a-b ranges, by commas; empty allows all.")]
Authentication = Annotated[bool | None, typer.Option(help="Whether clients must present a token.")]
Strictness = Annotated[bool | None, typer.Option(help="Whether installers must be what is said of them.")]


@app.command()
def create(
    tenant_id: TenantId,
    storage_quota: Quota = None,
    max_clients: Clients = None,
    allowed_networks: Networks = None,
    client_authentication: Authentication = None,
    data: Data = None,
) -> None:
    """Create a tenant. Without a number there is no limit."""
    tenant = Tenant(
        tenant_id,
        client_authentication=bool(client_authentication),
        allowed_networks=_networks(allowed_networks or ""),
        storage_quota=storage_quota,
        max_clients=max_clients,
    )
    asyncio.run(_create(places(data), tenant))
    console.print(f"Tenant {tenant_id} was created; `pkgrepo user create {tenant_id} NAME` gives it an administrator.")


@app.command("list")
def list_tenants(data: Data = None) -> None:
    """List the tenants and their settings."""
    limits = ("Storage quota", "Max. clients")
    table = Table("Tenant", "Client authentication", "Allowed networks", *limits, "Version key", "Installers")
    for tenant in asyncio.run(_list(places(data))):
        table.add_row(
            tenant.tenant_id,
            "enforced" if tenant.client_authentication else "off",
            ", ".join(tenant.allowed_networks) or "all",
            "none" if tenant.storage_quota is None else f"{tenant.storage_quota:,} bytes",
            "none" if tenant.max_clients is None else f"{tenant.max_clients:,}",
            tenant.version_key,
            "strict" if tenant.strict_installers else "",
        )
    console.print(table)


@app.command()
def edit(
    tenant_id: TenantId,
    storage_quota: Annotated[str | None, typer.Option(help="Bytes, or `none`.")] = None,
    max_clients: Annotated[str | None, typer.Option(help="A number, or `none`.")] = None,
    allowed_networks: Networks = None,
    client_authentication: Authentication = None,
    version_key: Annotated[VersionKey | None, typer.Option(help="What is unique within a package.")] = None,
    strict_installers: Strictness = None,
    data: Data = None,
) -> None:
    """Change a tenant; in force everywhere at once."""
    changes: dict[str, object] = {}
    if storage_quota is not None:
        changes["storage_quota"] = _limit("--storage-quota", storage_quota, MOST_BYTES)
    if max_clients is not None:
        changes["max_clients"] = _limit("--max-clients", max_clients, MOST_CLIENTS)
    if allowed_networks is not None:
        changes["allowed_networks"] = _networks(allowed_networks)
    if client_authentication is not None:
        changes["client_authentication"] = client_authentication
    if version_key is not None:
        changes["version_key"] = version_key
    if strict_installers is not None:
        changes["strict_installers"] = strict_installers
    asyncio.run(_edit(places(data), tenant_id, changes))
    console.print(f"Tenant {tenant_id} was changed.")


@app.command()
def delete(
    tenant_id: TenantId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: Data = None,
) -> None:
    """Delete a tenant with its users, packages, installers and clients."""
    if not yes and typer.prompt(f"Everything of {tenant_id} will be gone. Type its id to go on") != tenant_id:
        raise typer.Abort
    if not asyncio.run(_delete(places(data), tenant_id)):
        console.print(f"There was no tenant {tenant_id}; what an earlier deletion may have left of it is gone.")
        raise typer.Exit(1)
    console.print(f"Tenant {tenant_id} was deleted.")


async def _create(where: StoreAddresses, tenant: Tenant) -> None:
    async with open_operator(where.addresses) as operator, open_record(where) as record:
        await operator.tenants.create(tenant)
        settings = {name: to_audit_text(value) for name, value in vars(tenant).items()}
        await record.add(tenant.tenant_id, "tenant_create", **settings)


async def _list(where: StoreAddresses) -> list[Tenant]:
    async with open_operator(where.addresses) as operator:
        return list(await operator.tenants.list())


async def _edit(where: StoreAddresses, tenant_id: str, changes: dict[str, object]) -> None:
    async with open_operator(where.addresses) as operator, open_record(where) as record:
        await record.add(tenant_id, "tenant_edit", await operator.tenants.edit(tenant_id, changes))


async def _delete(where: StoreAddresses, tenant_id: str) -> bool:
    if is_tenant_id(tenant_id):
        async with open_record(where) as record:
            await record.add_deletion(tenant_id)
    return await delete_tenant(where.addresses, where.installers, tenant_id)


def _networks(listed: str) -> tuple[str, ...]:
    return tuple(parse_network("--allowed-networks", part.strip()) for part in listed.split(",") if part.strip())


def _limit(option: str, text: str, most: int) -> int | None:
    if text.casefold() == "none":
        return None
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) > most:
        raise typer.BadParameter(f"must be a whole number up to {most}, or `none`", param_hint=option)
    return int(text)
